// The parts that commands are made of: what must be true of a command, and what several commands do to a state.
import { isBroken } from './broken.mjs';
import { REASONS } from './reasons.mjs';
import {
  backoff, closedGate, findEvent, grantOf, handlerOf, isActive, isApproved, isTooLong, repairOf, sameKey,
} from './state.mjs';

// A refusal is thrown as the document that `step` returns.
export function refuseIf(condition, reason, detail = '') {
  if (condition) throw { type: 'rejected', reason, rule: REASONS[reason].rule, detail: String(detail) };
}

function need(row, reason, detail) {
  refuseIf(!row, reason, detail);
  return row;
}

export const requireGate = (state, now) => refuseIf(closedGate(state, now), closedGate(state, now));
export const requireNoRun = (state) => refuseIf(isActive(state), 'run_active');
export const liveRun = (state, id) => need(state.run?.id === id && state.run, 'run_unknown', id);
export const openSession = (state, id) => need(state.session?.id === id && state.session, 'session_unknown', id);
export const handlerNamed = (state, name) =>
  need(state.handlers.find(({ declared }) => declared.name === name), 'handler_unknown', name);

// SESS-003.
export const requireBudget = (state, id) =>
  refuseIf(openSession(state, id).runs >= state.policy.session_runs, 'session_spent', id);

export function activeRun(state, id, kind = state.run?.kind) {
  const run = liveRun(state, id);
  refuseIf(run.status !== 'active', 'run_not_active', run.status);
  refuseIf(run.kind !== kind, 'wrong_kind', run.kind);
  return run;
}

export function runInPhase(state, id, kind, ...phases) {
  const run = activeRun(state, id, kind);
  refuseIf(!phases.includes(run.phase), 'phase', run.phase);
  return run;
}

export const requireSize = (state, text) =>
  refuseIf(isTooLong(state, text), 'too_large', `${text.length} characters`);

export function recordIn({ mutation }, status) {
  refuseIf(!mutation, 'record_missing');
  refuseIf(mutation.status !== status, 'mutation_edge', mutation.status);
  return mutation;
}

// MUT-008: who speaks of which record, and when.
const SPEAKS_OF = { call: 'in_flight', inline: 'needs_reconcile', reconcile: 'needs_reconcile', user: 'indeterminate' };

export function recordFor(state, id, by) {
  liveRun(state, id);
  refuseIf(isActive(state) !== ['call', 'inline'].includes(by), 'author', by);
  return recordIn(state, SPEAKS_OF[by]);
}

// The run comes into a phase, and the host is asked to call the function of that phase.
export function enter({ effects, state: { run } }, phase, name) {
  run.phase = phase;
  effects.push({ type: 'call_handler', run: run.id, handler: run.handler, version: run.version, function: name });
}

export const heldBy = (state, run) =>
  state.events.filter((event) => event.status === 'reserved' && event.owner === run.id);

function release(state, run) {
  const events = heldBy(state, run);
  for (const event of events) Object.assign(event, { status: 'pending', owner: '' });
  return events;
}

// Events become final, and an approval goes when one of its events is (PERM-005).
export function finish(state, events, status) {
  for (const event of events) event.status = status;
  const isFinal = (key) => ['consumed', 'skipped'].includes(findEvent(state, key)?.status);
  state.approvals = state.approvals.filter((approval) => !approval.events.some(isFinal));
}

// EVENT-004.
export function pendingEvent(state, key) {
  const event = need(findEvent(state, key), 'event_unknown', key.id);
  refuseIf(event.status !== 'pending', 'event_not_pending', key.id);
  return event;
}

// SCHED-005.
function wake(state, topic) {
  const consumer = state.handlers.find((row) => row.declared.subscribes.includes(topic));
  if (consumer) consumer.dirty = true;
}

// EVENT-007 to EVENT-010.
export function publish(state, { key, title, payload }, created_by, causes) {
  refuseIf(!state.topics.includes(key.topic), 'topic_unknown', key.topic);
  refuseIf(!key.id || !/[^\p{White_Space}\x1c-\x1f]/u.test(title), 'title_missing', key.id);
  requireSize(state, payload);
  const known = findEvent(state, key);
  const changeable = isBroken('publish-over-reserved') ? ['pending', 'reserved'] : ['pending'];
  if (known && !changeable.includes(known.status)) return;
  const fresh = { key, seq: state.next_seq, status: 'pending', owner: '', title, payload, created_by, causes };
  if (known) Object.assign(known, { title, payload });
  else state.events.push(fresh);
  if (!known) state.next_seq += 1;
  wake(state, key.topic);
}

// Run and record leave the state.
export function leave({ state, retired }) {
  Object.assign(retired, { run: state.run, mutation: state.mutation });
  Object.assign(state, { run: null, mutation: null });
}

export function closeSession({ state, retired }, status) {
  retired.session = { ...state.session, status };
  state.session = null;
}

const error = (kind, cause, run, message, more) => ({ kind, cause, run, message, tool: '', request: null, ...more });

// WORK-003: a block never overwrites.
export const block = (state, cause, run, message) => { state.error ??= error('blocked', cause, run, message); };

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
export const loseTrack = (record, now) =>
  Object.assign(record, { status: record.reconcilable ? 'needs_reconcile' : 'indeterminate', next_attempt_at: now });

// MUT-010: record, outcome, result and phase in one step.
export function resolve(state, status, resolved_by, outcome, result = '') {
  Object.assign(state.mutation, { status, resolved_by });
  Object.assign(state.run, { outcome, result, phase: 'mutated' });
  if (state.error?.kind === 'uncertain' && state.error.run === state.run.id) state.error = null;
}

export function resolveFailed(work, resolved_by) {
  const { state, state: { run } } = work;
  resolve(state, 'failed', resolved_by, 'failure');
  const released = release(state, run);
  if (isActive(state)) return;
  for (const event of released) wake(state, event.key.topic);
  const row = handlerOf(state, run);
  if (row) countTransient(state, row, work.now, run);
  leave(work);
}

// EVENT-011: the roots of what the run reserves.
export function rootsOf(events) {
  const inOrder = [...events].sort((a, b) => a.seq - b.seq);
  const isRoot = (event) => event.causes.length === 0 || isBroken('causes-are-parents');
  const roots = inOrder.flatMap((event) => (isRoot(event) ? [event.key] : event.causes));
  return roots.filter((key, i) => roots.findIndex((other) => sameKey(key, other)) === i);
}

// RUN-005: a new run takes the slot.
export function startRun(state, { now, run, session }, { declared }, more) {
  refuseIf(!run, 'id_empty');
  state.session.runs += 1;
  state.run = {
    id: run, handler: declared.name, kind: declared.kind, session, version: state.version, status: 'active',
    phase: 'pending', outcome: '', retry_of: '', created_at: now, reserved: [], causes: [], data: 'null', title: '',
    result: '', message: '', abandoned: false, ...more,
  };
}

// COMMIT-002 to COMMIT-004, for both kinds.
export function commit(work, command) {
  const { state, state: { run } } = work;
  const row = handlerOf(state, run);
  requireSize(state, command.state ?? '');
  finish(state, heldBy(state, run), 'consumed');
  for (const publication of command.publications) publish(state, publication, run.id, run.causes);
  row.state = command.state ?? row.state;
  const resets = run.kind === 'producer' || run.reserved.length > 0; // FAIL-005
  if (resets) Object.assign(row, { transient_failures: 0, logic_failures: 0 });
  Object.assign(run, { status: 'committed', phase: 'committed' });
  state.session.commits += 1;
  leave(work);
  return [row, run];
}

// WORK-006: in what a declaration contradicts itself, or nothing.
export function contradiction({ version, topics, handlers }) {
  const twice = (list) => new Set(list).size < list.length;
  const names = handlers.map((handler) => handler.name);
  const subscribed = handlers.flatMap((handler) => handler.subscribes);
  const ofHandler = ({ name, kind, subscribes, has_mutate, interval_ms, cron }) => [
    [kind === 'consumer' && !subscribes.length, `${name} subscribes to nothing`],
    [kind === 'consumer' && (interval_ms || cron), `${name} is a consumer with a schedule`],
    [kind === 'producer' && subscribes.length, `${name} is a producer that subscribes`],
    [kind === 'producer' && has_mutate, `${name} is a producer with a mutate`],
    [interval_ms < 0, `${name} has a negative interval`],
    [interval_ms && cron, `${name} has two schedules`],
  ];
  const problems = [
    [!version, 'a version needs a name'],
    [[...topics, ...names].includes(''), 'a topic or a handler needs a name'],
    [twice(topics), 'a topic stands twice'],
    [twice(names), 'a handler stands twice'],
    [twice(subscribed), 'a topic has two consumers'],
    [subscribed.some((topic) => !topics.includes(topic)), 'a subscribed topic is not declared'],
    ...handlers.flatMap(ofHandler),
  ];
  return problems.find(([isSo]) => isSo)?.[1] ?? '';
}

// WORK-007: the row of a handler after a deploy.
export function deployedRow(state, declared, now) {
  const old = handlerOf(state, { handler: declared.name, kind: declared.kind });
  const fresh = { state: '', dirty: false, wake_at: 0, due_at: -1, transient_failures: 0, logic_failures: 0 };
  const row = { ...fresh, ...old, declared };
  if (isBroken('deploy-resets-counts')) row.transient_failures = row.logic_failures = 0;
  const isOld = old?.declared.interval_ms === declared.interval_ms && old.declared.cron === declared.cron;
  if (declared.kind === 'consumer') row.dirty = true;
  else if (!isOld) row.due_at = now;
  return row;
}

// PERM-004.
export function answerRequest(state, digest) {
  const request = state.error?.request;
  refuseIf(request?.digest !== digest, 'no_request', digest);
  state.error = null;
  return request;
}

// RUN-008 and PERM-003: the error that an end raises by itself, or none.
function errorOfEnd(state, run, { status, cause, tool, message }) {
  if (status === 'failed:internal') return error('internal', '', run.id, message);
  if (status !== 'paused:approval') return null;
  refuseIf(cause === 'permission' && (!tool || grantOf(state, tool)), 'nothing_asked', tool);
  if (cause !== 'request') return error('approval', cause, run.id, message, { tool });
  const record = state.mutation;
  const asks = record?.status === 'pending' && grantOf(state, record.tool)?.mode === 'ask' && !isApproved(state);
  refuseIf(!asks, 'nothing_asked', record?.tool ?? '');
  const request = { tool: record.tool, digest: record.digest, events: run.reserved };
  return error('approval', cause, run.id, message, { request });
}

// BOUND-004 to BOUND-006, and what the end costs.
export function endRun(work, command, side) {
  const { state, now, state: { run, mutation } } = work;
  const row = handlerOf(state, run);
  if (side === 'UNCERTAIN') {
    run.status = 'paused:reconciliation';
    if (mutation.status === 'in_flight') loseTrack(mutation, now);
    state.error = error('uncertain', '', run.id, run.message);
    return;
  }
  state.error = errorOfEnd(state, run, command) ?? state.error;
  run.status = command.status;
  if (run.status === 'failed:logic') countLogic(state, row, run);
  const foundFailed = mutation?.status === 'failed' && mutation.resolved_by === 'inline'; // FAIL-006
  if (['paused:transient', 'crashed'].includes(run.status) || foundFailed) countTransient(state, row, now, run);
  if (run.status === 'failed:logic' && repairOf(state)) work.effects.push(repairOf(state));
  if (side === 'AFTER') return;
  release(state, run);
  if (mutation?.status === 'pending') Object.assign(mutation, { status: 'failed', resolved_by: 'never_sent' });
  leave(work);
}
