// What to do next, asked of the state alone: `schedule`, `upkeep`, `recover` (spec/07 and spec/09). The answer
// is a command, an effect, or a document of type `idle` or `wait`.
import { closedGate, handlerOf, isActive, isUnresolved, reconcileOf, repairOf } from './state.mjs';

const idle = (reason) => ({ type: 'idle', reason });
const wait = (until, reason) => ({ type: 'wait', until, reason });

// SCHED-004. A wake time of 0 and a due time of -1 mean that none is set.
const isDue = (row, now) => (row.declared.kind === 'consumer'
  ? row.dirty || (row.wake_at > 0 && row.wake_at <= now)
  : row.due_at >= 0 && row.due_at <= now);

// SCHED-002: consumers by their oldest pending event, then producers by their time; sort() keeps the declared order.
function nextHandler(state, now) {
  const oldest = (row) => state.events.find((event) =>
    event.status === 'pending' && row.declared.subscribes.includes(event.key.topic))?.seq ?? Infinity;
  const rank = (row) => (row.declared.kind === 'consumer' ? [0, oldest(row)] : [1, row.due_at]);
  const before = ([a, b], [c, d]) => a - c || (b === d ? 0 : b - d);
  const ranked = state.handlers.filter((row) => isDue(row, now)).map((row) => [rank(row), row]);
  return ranked.sort(([a], [b]) => before(a, b))[0]?.[1];
}

export function schedule(state, now, freshId) {
  const closed = closedGate(state, now);
  if (closed === 'run_active') return idle(closed);
  const finish = state.session && { type: 'finish_session', now, session: state.session.id };
  if (closed) return finish || (closed === 'backing_off' ? wait(state.backoff_until, closed) : idle(closed));
  if (state.run && !handlerOf(state, state.run)) return finish || idle('handler_removed');
  const row = state.run ? null : nextHandler(state, now);
  if (!state.run && !row) {
    const timeOf = (row) => (row.declared.kind === 'consumer' ? row.wake_at : row.due_at);
    const next = Math.min(...state.handlers.map(timeOf).filter((time) => time > now));
    return finish || (next < Infinity ? wait(next, 'nothing_due') : idle('nothing_due'));
  }
  if (!state.session) return { type: 'start_session', now, session: freshId };
  if (state.session.runs >= state.policy.session_runs) return finish;
  const common = { now, run: freshId, session: state.session.id };
  return state.run ? { type: 'create_retry', ...common, retry_of: state.run.id }
    : { type: 'create_run', ...common, handler: row.declared.name };
}

// SCHED-008.
export function upkeep(state, now) {
  if (!isActive(state) && isUnresolved(state)) {
    const record = state.mutation;
    if (record.status === 'indeterminate') return idle('mutation_unresolved');
    if (!record.reconcilable || record.attempts >= state.policy.reconcile_attempts) {
      return { type: 'exhaust', now, run: record.run, no_method: false };
    }
    return record.next_attempt_at > now ? wait(record.next_attempt_at, 'mutation_unresolved')
      : reconcileOf(record, 'reconcile', now);
  }
  return repairOf(state) ?? idle('nothing_due');
}

// REC-001 to REC-003: at most one command at a time; asked again until it returns none.
export function recover(state, now) {
  if (isActive(state)) {
    const { id } = state.run;
    return [{ type: 'end_run', now, run: id, status: 'crashed', message: 'the host died', cause: '', tool: '' }];
  }
  return state.session ? [{ type: 'finish_session', now, session: state.session.id }] : [];
}
