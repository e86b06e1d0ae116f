// The store: one append-only file. Each line is one commit as JSON, with the state after it and the rows that left it,
// so that a commit is whole or not there: a line without its line feed was cut by a crash and is dropped at the next
// start.
import { closeSync, existsSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { isBroken } from './broken.mjs';

function syncFolder(path) {
  const folder = openSync(dirname(path), 'r');
  fsyncSync(folder);
  closeSync(folder);
}

export class Store {
  constructor(path) {
    const isNew = !existsSync(path);
    this.file = openSync(path, 'a+');
    if (isNew) syncFolder(path);
    const bytes = readFileSync(path);
    const end = bytes.lastIndexOf('\n') + 1;
    if (end < bytes.length) ftruncateSync(this.file, end);
    const start = end > 1 ? bytes.lastIndexOf('\n', end - 2) + 1 : 0;
    this.state = end > 0 ? JSON.parse(bytes.subarray(start, end).toString()).state : null;
  }

  // HOST-001: when this returns, the commit is on the disk, and only then its effects are performed.
  commit(state, retired = null) {
    this.state = state;
    if (isBroken('commit-not-durable') && state.mutation?.status === 'in_flight') return;
    let line = Buffer.from(`${JSON.stringify({ state, retired })}\n`);
    while (line.length > 0) line = line.subarray(writeSync(this.file, line));
    fsyncSync(this.file);
  }

  clear() {
    ftruncateSync(this.file, 0);
    fsyncSync(this.file);
    this.state = null;
  }
}
