// The parts that commands are made of: what must be true of a command, and what several commands do to a state.
import { isBroken } from './broken.mjs';
import { RULES } from './reasons.mjs';
import {
  backoff, closedGate, findEvent, grantOf, handlerOf, isActive, isApproved, repairOf, sameKey,
} from './state.mjs';

export class Refusal extends Error {
  constructor(reason, detail) {
    super(reason);
    this.document = { type: 'rejected', reason, rule: RULES[reason], detail: String(detail) };
  }
}

export function refuseIf(condition, reason, detail = '') {
  if (condition) throw new Refusal(reason, detail);
}

// What must be true of a command:

export function requireGate(state, now) {
  const closed = closedGate(state, now);
  refuseIf(closed, closed);
}

export const requireNoRun = (state) => refuseIf(isActive(state), 'run_active');

export function liveRun(state, id) {
  refuseIf(state.run?.id !== id, 'run_unknown', id);
  return state.run;
}

export function activeRun(state, id) {
  const run = liveRun(state, id);
  refuseIf(run.status !== 'active', 'run_not_active', run.status);
  return run;
}

export function runInPhase(state, id, kind, ...phases) {
  const run = activeRun(state, id);
  refuseIf(kind && run.kind !== kind, 'wrong_kind', run.kind);
  refuseIf(!phases.includes(run.phase), 'phase', run.phase);
  return run;
}

export function openSession(state, id) {
  refuseIf(state.session?.id !== id, 'session_unknown', id);
  return state.session;
}

export function sessionWithBudget(state, id) {
  const session = openSession(state, id);
  refuseIf(session.runs >= state.policy.session_runs, 'session_spent', id);
  return session;
}

export function requireSize(state, text) {
  if (text === null || text.length <= state.policy.json_max_chars) return;
  const length = [...text].length; // EVENT-009 counts code points, and JavaScript counts units.
  refuseIf(length > state.policy.json_max_chars, 'too_large', `${length} characters`);
}

// MUT-008: who speaks of which record, and when.
const SPEAKS_OF = { call: 'in_flight', inline: 'needs_reconcile', reconcile: 'needs_reconcile', user: 'indeterminate' };

export function recordFor(state, id, by) {
  const run = liveRun(state, id);
  refuseIf(isActive(state) !== ['call', 'inline'].includes(by), 'author', by);
  refuseIf(!state.mutation, 'record_missing');
  refuseIf(state.mutation.status !== SPEAKS_OF[by], 'mutation_edge', state.mutation.status);
  return [run, state.mutation];
}

// What several commands do:

export const callHandler = (work, { id, handler, version }, name) =>
  work.effects.push({ type: 'call_handler', run: id, handler, version, function: name });

export const heldBy = (state, run) =>
  state.events.filter((event) => event.status === 'reserved' && event.owner === run.id);

function release(state, run) {
  const events = heldBy(state, run);
  for (const event of events) Object.assign(event, { status: 'pending', owner: '' });
  return events;
}

// PERM-005: an approval goes when one of its events is final.
export function finish(state, events, status) {
  for (const event of events) event.status = status;
  state.approvals = state.approvals.filter((approval) => !approval.events.some((key) => isFinal(state, key)));
}

const isFinal = (state, key) => ['consumed', 'skipped'].includes(findEvent(state, key)?.status);

// SCHED-005.
function wake(state, topic) {
  const consumer = state.handlers.find((row) => row.declared.subscribes.includes(topic));
  if (consumer) consumer.dirty = true;
}

export function publish(state, { key, title, payload }, createdBy, causes) {
  refuseIf(!state.topics.includes(key.topic), 'topic_unknown', key.topic);
  refuseIf(!key.id || !title.trim(), 'title_missing', key.id);
  requireSize(state, payload);
  const known = findEvent(state, key);
  const changeable = isBroken('publish-over-reserved') ? ['pending', 'reserved'] : ['pending'];
  if (known && !changeable.includes(known.status)) return;
  if (known) {
    Object.assign(known, { title, payload });
  } else {
    const seq = state.next_seq++;
    state.events.push({ key, seq, status: 'pending', owner: '', title, payload, created_by: createdBy, causes });
  }
  wake(state, key.topic);
}

export function leave(work) {
  work.retired.run = work.state.run;
  work.retired.mutation = work.state.mutation;
  work.state.run = work.state.mutation = null;
}

export function closeSession(work, status) {
  work.retired.session = { ...work.state.session, status };
  work.state.session = null;
}

const error = (kind, cause, run, message, more) => ({ kind, cause, run, message, tool: '', request: null, ...more });

// WORK-003: a block never overwrites.
export function block(state, cause, run, message) {
  state.error ??= error('blocked', cause, run, message);
}

// FAIL-003.
function countTransient(state, row, now, run) {
  row.transient_failures += 1;
  const { transient_retries, backoff_base_ms, backoff_max_ms } = state.policy;
  if (row.transient_failures > transient_retries) block(state, 'transient', run.id, run.message);
  else state.backoff_until = now + backoff(backoff_base_ms, backoff_max_ms, row.transient_failures);
}

// FAIL-004 and WORK-005.
function countLogic(state, row, run) {
  row.logic_failures += 1;
  state.maintenance = { run: run.id, handler: run.handler, message: run.message };
  if (row.logic_failures >= state.policy.logic_failures) block(state, 'logic', run.id, run.message);
}

// MUT-007.
export function loseTrack(record, now) {
  if (record.reconcilable) Object.assign(record, { status: 'needs_reconcile', next_attempt_at: now });
  else record.status = 'indeterminate';
}

// MUT-010: record, outcome, result and phase in one step.
export function resolve(state, status, resolvedBy, outcome, result = '') {
  Object.assign(state.mutation, { status, resolved_by: resolvedBy });
  Object.assign(state.run, { outcome, result, phase: 'mutated' });
  if (state.error?.kind === 'uncertain' && state.error.run === state.run.id) state.error = null;
}

export function resolveFailed(work, resolvedBy) {
  const { state, now, state: { run } } = work;
  resolve(state, 'failed', resolvedBy, 'failure');
  const released = release(state, run);
  if (isActive(state)) return ['MUT-008', 'MUT-010', 'EVENT-005'];
  for (const event of released) wake(state, event.key.topic);
  const row = handlerOf(state, run);
  if (row) countTransient(state, row, now, run);
  leave(work);
  return ['MUT-008', 'MUT-010', 'EVENT-005', 'FAIL-006'];
}

// EVENT-011: the roots of what the run reserves.
export function rootsOf(events) {
  const roots = [];
  for (const event of [...events].sort((a, b) => a.seq - b.seq)) {
    for (const key of event.causes.length && !isBroken('causes-are-parents') ? event.causes : [event.key]) {
      if (!roots.some((root) => sameKey(root, key))) roots.push(key);
    }
  }
  return roots;
}

export const newRun = (state, command, row, more) => ({
  id: command.run, handler: row.declared.name, kind: row.declared.kind, session: command.session,
  version: state.version, status: 'active', phase: 'pending', outcome: '', retry_of: '', created_at: command.now,
  reserved: [], causes: [], data: 'null', title: '', result: '', message: '', abandoned: false, ...more,
});

export function commit(work, command) {
  const { state, state: { run } } = work;
  const row = handlerOf(state, run);
  requireSize(state, command.state);
  finish(state, heldBy(state, run), 'consumed');
  for (const publication of command.publications) publish(state, publication, run.id, run.causes);
  if (command.state !== null) row.state = command.state;
  const resets = run.kind === 'producer' || run.reserved.length > 0; // FAIL-005
  if (resets) Object.assign(row, { transient_failures: 0, logic_failures: 0 });
  Object.assign(run, { status: 'committed', phase: 'committed' });
  state.session.commits += 1;
  leave(work);
  return [row, run];
}

// WORK-006: what a declaration contradicts itself in, or nothing.
export function contradiction({ version, topics, handlers }) {
  const twice = (names) => new Set(names).size < names.length;
  const subscribed = handlers.flatMap((handler) => handler.subscribes);
  if (!version) return 'a version needs a name';
  if (topics.includes('')) return 'a topic needs a name';
  if (handlers.some((handler) => !handler.name)) return 'a handler needs a name';
  if (twice(topics)) return 'a topic stands twice';
  if (twice(handlers.map((handler) => handler.name))) return 'a handler stands twice';
  if (twice(subscribed)) return 'a topic has two consumers';
  if (subscribed.some((topic) => !topics.includes(topic))) return 'a subscribed topic is not declared';
  for (const { name, kind, subscribes, has_mutate, interval_ms, cron } of handlers) {
    const schedules = (interval_ms !== 0) + (cron !== '');
    if (kind === 'consumer' && !subscribes.length) return `${name} subscribes to nothing`;
    if (kind === 'consumer' && schedules) return `${name} is a consumer with a schedule`;
    if (kind === 'producer' && subscribes.length) return `${name} is a producer that subscribes`;
    if (kind === 'producer' && has_mutate) return `${name} is a producer with a mutate`;
    if (interval_ms < 0) return `${name} has a negative interval`;
    if (schedules > 1) return `${name} has two schedules`;
  }
  return '';
}

// WORK-007: the row of a handler after a deploy.
export function deployedRow(state, declared, now) {
  const old = handlerOf(state, { handler: declared.name, kind: declared.kind });
  const fresh = { state: '', dirty: false, wake_at: 0, due_at: -1, transient_failures: 0, logic_failures: 0 };
  const row = { ...fresh, ...old, declared };
  if (isBroken('deploy-resets-counts')) row.transient_failures = row.logic_failures = 0;
  const unchanged = old && old.declared.interval_ms === declared.interval_ms && old.declared.cron === declared.cron;
  if (declared.kind === 'consumer') row.dirty = true;
  else if (!unchanged) row.due_at = now;
  return row;
}

export function standingRequest(state, digest) {
  const request = state.error?.kind === 'approval' ? state.error.request : null;
  refuseIf(request?.digest !== digest, 'no_request', digest);
  state.error = null;
  return request;
}

// RUN-008 and PERM-003: the error that an end raises by itself, or nothing.
function errorOfEnd(state, run, { status, cause, tool, message }) {
  if (status === 'failed:internal') return error('internal', '', run.id, message);
  if (status !== 'paused:approval') return null;
  if (cause === 'auth') return error('approval', cause, run.id, message);
  if (cause === 'permission') {
    refuseIf(!tool || grantOf(state, tool), 'nothing_asked', tool);
    return error('approval', cause, run.id, message, { tool });
  }
  const record = state.mutation;
  const asks = record?.status === 'pending' && grantOf(state, record.tool)?.mode === 'ask' && !isApproved(state);
  refuseIf(!asks, 'nothing_asked', record?.tool ?? '');
  const request = { tool: record.tool, digest: record.digest, events: run.reserved };
  return error('approval', cause, run.id, message, { request });
}

// BOUND-006.
export function endUncertain(state, run, record, now) {
  run.status = 'paused:reconciliation';
  if (record.status === 'in_flight') loseTrack(record, now);
  state.error = error('uncertain', '', run.id, run.message);
}

// BOUND-004 and BOUND-005, and what the end costs.
export function endCertain(work, run, command, side) {
  const { state, now, state: { mutation: record } } = work;
  const row = handlerOf(state, run);
  state.error = errorOfEnd(state, run, command) ?? state.error;
  run.status = command.status;
  if (run.status === 'failed:logic') countLogic(state, row, run);
  const foundFailed = record?.status === 'failed' && record.resolved_by === 'inline'; // FAIL-006
  if (['paused:transient', 'crashed'].includes(run.status) || foundFailed) countTransient(state, row, now, run);
  const repair = run.status === 'failed:logic' && repairOf(state);
  if (repair) work.effects.push(repair);
  if (side === 'AFTER') return;
  release(state, run);
  if (record?.status === 'pending') Object.assign(record, { status: 'failed', resolved_by: 'never_sent' });
  leave(work);
}

