// The store: one append-only file. Each line is one commit as JSON, with the state after it and the rows that left it,
// so that a commit is whole or not there: a line without its line feed was cut by a crash and is dropped at the next
// start. A reset begins a new file, which takes the place of the old one in one step.
import {
  closeSync, existsSync, fsyncSync, ftruncateSync, openSync, readFileSync, renameSync, writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { isBroken } from './broken.mjs';

export const CRASH_POINTS = ['before the write', 'half written', 'after the write'];

function write(file, bytes) {
  for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done);
  fsyncSync(file);
}

export class Store {
  constructor(path) {
    this.path = path;
    this.crashAt = null; // the crash point at which to die, for a test
    if (!existsSync(path)) return this.reset(null);
    this.file = openSync(path, 'a');
    const bytes = readFileSync(path);
    const end = bytes.lastIndexOf('\n') + 1;
    if (end < bytes.length) ftruncateSync(this.file, end);
    const start = bytes.subarray(0, end - 1).lastIndexOf('\n') + 1;
    this.state = JSON.parse(bytes.subarray(start, end)).state;
  }

  reset(state) {
    const fresh = openSync(`${this.path}.new`, 'w');
    write(fresh, Buffer.from(`${JSON.stringify({ state, retired: null })}\n`));
    renameSync(`${this.path}.new`, this.path);
    const folder = openSync(dirname(this.path), 'r');
    fsyncSync(folder);
    closeSync(folder);
    if (this.file !== undefined) closeSync(this.file);
    this.file = fresh;
    this.state = state;
  }

  // HOST-001: when this returns, the commit is on the disk, and only then may its effects be performed.
  commit(state, retired) {
    this.state = state;
    if (isBroken('send-not-durable') && state.mutation?.status === 'in_flight') return;
    const line = Buffer.from(`${JSON.stringify({ state, retired })}\n`);
    this.dieAt('before the write');
    if (this.crashAt === 'half written') write(this.file, line.subarray(0, line.length / 2));
    this.dieAt('half written');
    write(this.file, line);
    this.dieAt('after the write');
  }

  dieAt(point) {
    if (this.crashAt === point) process.kill(process.pid, 'SIGKILL');
  }
}
