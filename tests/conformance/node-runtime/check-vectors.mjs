// Plays spec/vectors through the kernel alone, without driver and store: node check-vectors.mjs [FOLDER]. It ends
// with 1 when something differs. The kit does the same and more; this is the quick way while one writes a kernel.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { recover } from './schedule.mjs';
import { newWorkflow } from './state.mjs';
import { step } from './step.mjs';

const folder = process.argv[2] ?? fileURLToPath(new URL('../../../spec/vectors', import.meta.url));
const read = (name) =>
  gunzipSync(readFileSync(`${folder}/${name}`)).toString().trimEnd().split('\n').map((line) => JSON.parse(line));
let played = 0;
let wrong = 0;

function compare(where, got, wanted) {
  played += 1;
  const parts = Object.keys(wanted).filter((part) => !isDeepStrictEqual(got[part], wanted[part]));
  if (parts.length === 0) return;
  wrong += 1;
  console.log(where, ...parts.map((part) =>
    `\n  ${part}: ${JSON.stringify(got[part])}\n  wanted: ${JSON.stringify(wanted[part])}`));
}

for (const { id, before, command, reason, after, effects, retired } of read('cases.ndjson.gz')) {
  const got = step(before, command);
  compare(id, { reason: got.reason, ...got.state, ...got }, reason ? { reason } : { ...after, effects, retired });
}

for (const name of ['tour', 'crashes']) {
  for (const [number, { states }] of read(`${name}.itf.ndjson.gz`).entries()) {
    const first = JSON.parse(states[0].state);
    let state = newWorkflow(first.workflow, first.policy);
    for (const [i, wanted] of states.entries()) {
      const commands = wanted.op === 'recover' ? recover(state, Number(wanted.now['#bigint'])) : [];
      if (wanted.op === 'do') commands.push(JSON.parse(wanted.command));
      const outcomes = commands.map((command) => step(state, command)); // there is one at most
      state = outcomes[0]?.state ?? state;
      const reason = wanted.op === 'do' ? outcomes[0].reason ?? 'accepted' : '';
      compare(`${name} ${number}.${i}`, { outcome: reason, effects: outcomes[0]?.effects ?? [], ...state },
        { outcome: wanted.outcome, effects: JSON.parse(wanted.effects), ...JSON.parse(wanted.state) });
    }
  }
}
console.log(`${played} steps played, ${wrong} differ`);
process.exitCode = wrong > 0 ? 1 : 0;
