// The driver: reads requests of the conformance kit from standard input, one JSON object a line, and answers each with
// one line on standard output (spec/conformance/protocol.md). It decides nothing.
import { join } from 'node:path';
import { Host } from './host.mjs';
import { newWorkflow } from './state.mjs';
import { COMMANDS } from './step.mjs';
import { CRASH_POINTS, Store } from './store.mjs';

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

// Lines end at a line feed and nowhere else, so `readline` would not do: it also ends them at U+2028.
async function* linesOf(stream) {
  let rest = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    yield* lines;
  }
}

const lines = linesOf(process.stdin);
let store = null;
let host = null;
let asked = 0;

async function ask(question) {
  asked += 1;
  say({ ask: asked, ...question });
  const { value, done } = await lines.next();
  if (done) process.exit(0);
  const answer = JSON.parse(value);
  if (answer.ask !== asked) throw new Error(`an answer to ask ${asked} was expected`);
  return answer;
}

const OPERATIONS = {
  hello({ data }) {
    store = new Store(join(data, 'commits.ndjson'));
    host = new Host(store, ask);
    const supports = ['load', 'behaviour'];
    return { protocol: 1, name: 'node-runtime', version: '1.0', supports, crash_points: CRASH_POINTS };
  },
  reset: ({ workflow, policy, state }) => store.reset(state ?? newWorkflow(workflow, policy)),
  do: ({ command }) =>
    (Object.hasOwn(COMMANDS, command.type) ? { outcome: host.do(command) } : { unsupported: command.type }),
  state: () => ({ state: store.state }),
  recover: ({ now, message }) => ({ effects: host.recover(now, message), state: store.state }),
  work: async ({ now }) => ({ until: await host.work(now) }),
  quit: () => null,
};

for await (const line of lines) {
  let id = null;
  try {
    const request = JSON.parse(line);
    id = request.id;
    if (store) store.crashAt = CRASH_POINTS[request.crash_at] ?? null;
    if (Object.hasOwn(OPERATIONS, request.op)) say({ id, ...await OPERATIONS[request.op](request) });
    else say({ id, unsupported: request.op });
    if (request.op === 'quit') break;
  } catch (error) {
    console.error(error);
    say({ id, error: String(error) });
  }
}
process.exit(0);
