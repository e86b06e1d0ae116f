// step(state, command): the one transition function (STEP-001). A command works on a copy of the state and throws a
// Refusal when it may not, so that a refused command has changed nothing (STEP-002).
import { createHash } from 'node:crypto';
import { isBroken } from './broken.mjs';
import { REASONS } from './reasons.mjs';
import {
  backoff, boundary, closedGate, consumerOf, findEvent, grantOf, handlerOf, isActive, isApproval, isApproved, isUnresolved,
  reconcileOf, repairOf, sameKey,
} from './state.mjs';

class Refusal extends Error {
  constructor(reason, detail) {
    super(reason);
    this.document = { type: 'rejected', reason, rule: REASONS[reason].rule, detail: String(detail) };
  }
}

function refuseIf(condition, reason, detail = '') {
  if (condition) throw new Refusal(reason, detail);
}

export function step(state, command) {
  const work = { state: structuredClone(state), now: command.now, effects: [], retired: { run: null, mutation: null, session: null } };
  try {
    const rules = COMMANDS[command.type](work.state, command, work);
    return { type: 'accepted', state: work.state, effects: work.effects, rules, retired: work.retired };
  } catch (refusal) {
    if (refusal instanceof Refusal) return refusal.document;
    throw refusal;
  }
}

// ---- what must be true of a command ----------------------------------------------------------------------------------

function requireGate(state, now) {
  const closed = closedGate(state, now);
  refuseIf(closed, closed);
}

const requireNoRun = (state) => refuseIf(isActive(state), 'run_active');

function liveRun(state, id) {
  refuseIf(state.run?.id !== id, 'run_unknown', id);
  return state.run;
}

function activeRun(state, id) {
  const run = liveRun(state, id);
  refuseIf(run.status !== 'active', 'run_not_active', run.status);
  return run;
}

function runInPhase(state, id, kind, ...phases) {
  const run = activeRun(state, id);
  refuseIf(kind && run.kind !== kind, 'wrong_kind', run.kind);
  refuseIf(!phases.includes(run.phase), 'phase', run.phase);
  return run;
}

function openSession(state, id) {
  refuseIf(state.session?.id !== id, 'session_unknown', id);
  return state.session;
}

function sessionWithBudget(state, id) {
  const session = openSession(state, id);
  refuseIf(session.runs >= state.policy.session_runs, 'session_spent', id);
  return session;
}

function requireSize(state, text) {
  if (text === null || text.length <= state.policy.json_max_chars) return;
  const length = [...text].length; // EVENT-009 counts code points, and JavaScript counts units.
  refuseIf(length > state.policy.json_max_chars, 'too_large', `${length} characters`);
}

// MUT-008: who speaks of which record, and when.
const SPEAKS_OF = { call: 'in_flight', inline: 'needs_reconcile', reconcile: 'needs_reconcile', user: 'indeterminate' };

function recordFor(state, id, by) {
  const run = liveRun(state, id);
  refuseIf(isActive(state) !== ['call', 'inline'].includes(by), 'author', by);
  refuseIf(!state.mutation, 'record_missing');
  refuseIf(state.mutation.status !== SPEAKS_OF[by], 'mutation_edge', state.mutation.status);
  return [run, state.mutation];
}

// ---- what several commands do ----------------------------------------------------------------------------------------

const callHandler = (work, { id, handler, version }, name) =>
  work.effects.push({ type: 'call_handler', run: id, handler, version, function: name });

const heldBy = (state, run) => state.events.filter((event) => event.status === 'reserved' && event.owner === run.id);

function release(state, run) {
  const events = heldBy(state, run);
  for (const event of events) Object.assign(event, { status: 'pending', owner: '' });
  return events;
}

// PERM-005: an approval goes when one of its events is final.
function finish(state, events, status) {
  for (const event of events) event.status = status;
  state.approvals = state.approvals.filter((approval) => !approval.events.some((key) => isFinal(state, key)));
}

const isFinal = (state, key) => ['consumed', 'skipped'].includes(findEvent(state, key)?.status);

function publish(state, { key, title, payload }, createdBy, causes) {
  refuseIf(!state.topics.includes(key.topic), 'topic_unknown', key.topic);
  refuseIf(!key.id || !title.trim(), 'title_missing', key.id);
  requireSize(state, payload);
  const known = findEvent(state, key);
  if (known && known.status !== 'pending' && !(isBroken('publish-over-reserved') && known.status === 'reserved')) return;
  if (known) {
    Object.assign(known, { title, payload });
  } else {
    const seq = state.next_seq++;
    state.events.push({ key, seq, status: 'pending', owner: '', title, payload, created_by: createdBy, causes });
  }
  const consumer = consumerOf(state, key.topic);
  if (consumer) consumer.dirty = true;
}

function leave(work) {
  work.retired.run = work.state.run;
  work.retired.mutation = work.state.mutation;
  work.state.run = work.state.mutation = null;
}

function closeSession(work, status) {
  work.retired.session = { ...work.state.session, status };
  work.state.session = null;
}

const error = (kind, cause, run, message, more = {}) => ({ kind, cause, run, message, tool: '', request: null, ...more });

// WORK-003: a block never overwrites.
function block(state, cause, run, message) {
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
function countLogic(work, row, run) {
  const { state } = work;
  row.logic_failures += 1;
  state.maintenance = { run: run.id, handler: run.handler, message: run.message };
  if (row.logic_failures >= state.policy.logic_failures) block(state, 'logic', run.id, run.message);
}

// MUT-007.
function loseTrack(record, now) {
  if (record.reconcilable) Object.assign(record, { status: 'needs_reconcile', next_attempt_at: now });
  else record.status = 'indeterminate';
}

// MUT-010: record, outcome, result and phase in one step.
function resolve(state, status, resolvedBy, outcome, result = '') {
  Object.assign(state.mutation, { status, resolved_by: resolvedBy });
  Object.assign(state.run, { outcome, result, phase: 'mutated' });
  if (state.error?.kind === 'uncertain' && state.error.run === state.run.id) state.error = null;
}

function resolveFailed(work, resolvedBy) {
  const { state, now } = work;
  const { run } = state;
  resolve(state, 'failed', resolvedBy, 'failure');
  const released = release(state, run);
  if (isActive(state)) return ['MUT-008', 'MUT-010', 'EVENT-005'];
  for (const event of released) {
    const consumer = consumerOf(state, event.key.topic);
    if (consumer) consumer.dirty = true;
  }
  const row = handlerOf(state, run);
  if (row) countTransient(state, row, now, run);
  leave(work);
  return ['MUT-008', 'MUT-010', 'EVENT-005', 'FAIL-006'];
}

// EVENT-011: the roots of what the run reserves.
function rootsOf(events) {
  const roots = [];
  for (const event of [...events].sort((a, b) => a.seq - b.seq)) {
    for (const key of event.causes.length && !isBroken('causes-are-parents') ? event.causes : [event.key]) {
      if (!roots.some((root) => sameKey(root, key))) roots.push(key);
    }
  }
  return roots;
}

const newRun = (state, command, row, more) => ({
  id: command.run, handler: row.declared.name, kind: row.declared.kind, session: command.session, version: state.version,
  status: 'active', phase: 'pending', outcome: '', retry_of: '', created_at: command.now, reserved: [], causes: [],
  data: 'null', title: '', result: '', message: '', abandoned: false, ...more,
});

function commit(work, command, publications) {
  const { state } = work;
  const { run } = state;
  const row = handlerOf(state, run);
  requireSize(state, command.state);
  finish(state, heldBy(state, run), 'consumed');
  for (const publication of publications) publish(state, publication, run.id, run.causes);
  if (command.state !== null) row.state = command.state;
  const counts = run.kind === 'producer' || run.reserved.length > 0;
  if (counts) Object.assign(row, { transient_failures: 0, logic_failures: 0 }); // FAIL-005
  Object.assign(run, { status: 'committed', phase: 'committed' });
  state.session.commits += 1;
  leave(work);
  return [row, run];
}

// WORK-006: what a declaration contradicts itself in, or nothing.
function contradiction({ version, topics, handlers }) {
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
function deployedRow(state, declared, now) {
  const old = handlerOf(state, { handler: declared.name, kind: declared.kind });
  const fresh = { state: '', dirty: false, wake_at: 0, due_at: -1, transient_failures: 0, logic_failures: 0 };
  const row = { ...fresh, ...old, declared };
  if (isBroken('deploy-resets-counts')) row.transient_failures = row.logic_failures = 0;
  const unchanged = old && old.declared.interval_ms === declared.interval_ms && old.declared.cron === declared.cron;
  if (declared.kind === 'consumer') row.dirty = true;
  else if (!unchanged) row.due_at = now;
  return row;
}

function standingRequest(state, digest) {
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
function endUncertain(state, run, record, now) {
  run.status = 'paused:reconciliation';
  if (record.status === 'in_flight') loseTrack(record, now);
  state.error = error('uncertain', '', run.id, run.message);
}

// BOUND-004 and BOUND-005, and what the end costs.
function endCertain(work, run, command, side) {
  const { state, now } = work;
  const row = handlerOf(state, run);
  state.error = errorOfEnd(state, run, command) ?? state.error;
  run.status = command.status;
  if (run.status === 'failed:logic') countLogic(work, row, run);
  const foundFailed = state.mutation?.status === 'failed' && state.mutation.resolved_by === 'inline';
  if (['paused:transient', 'crashed'].includes(run.status) || foundFailed) countTransient(state, row, now, run);
  const repair = run.status === 'failed:logic' && repairOf(state);
  if (repair) work.effects.push(repair);
  if (side === 'AFTER') return;
  release(state, run);
  if (state.mutation?.status === 'pending') Object.assign(state.mutation, { status: 'failed', resolved_by: 'never_sent' });
  leave(work);
}

// ---- the commands (spec/12), each of which returns the rules that it fired --------------------------------------------

const COMMANDS = {
  start_session(state, { now, session }) {
    requireGate(state, now);
    refuseIf(state.session, 'session_open');
    refuseIf(!session, 'id_empty');
    state.session = { id: session, status: 'open', runs: 0, commits: 0 };
    return ['SESS-002'];
  },

  create_run(state, command) {
    requireGate(state, command.now);
    refuseIf(state.run, 'retry_pending');
    const session = sessionWithBudget(state, command.session);
    const row = state.handlers.find(({ declared }) => declared.name === command.handler);
    refuseIf(!row, 'handler_unknown', command.handler);
    refuseIf(!command.run, 'id_empty');
    state.run = newRun(state, command, row);
    session.runs += 1;
    if (!isBroken('dirty-cleared-at-commit')) row.dirty = false;
    return ['RUN-005', 'SCHED-003', 'SCHED-006'];
  },

  create_retry(state, command, work) {
    requireGate(state, command.now);
    const session = sessionWithBudget(state, command.session);
    const old = state.run;
    refuseIf(old?.id !== command.retry_of, 'not_pending_retry', command.retry_of);
    refuseIf(boundary(state) !== 'AFTER', 'not_after');
    const row = handlerOf(state, old);
    refuseIf(!row, 'handler_removed', old.handler);
    refuseIf(!command.run, 'id_empty');
    refuseIf(command.run === old.id, 'id_in_use', command.run);
    const { outcome, reserved, causes, data, title } = old;
    const result = isBroken('retry-forgets-result') ? '' : old.result;
    const events = heldBy(state, old);
    leave(work);
    const known = { phase: 'emitting', retry_of: old.id, outcome, reserved, causes, data, title, result };
    state.run = newRun(state, command, row, known);
    for (const event of events) event.owner = state.run.id;
    session.runs += 1;
    row.dirty = false;
    callHandler(work, state.run, 'next');
    return ['RETRY-001', 'RETRY-002', 'RETRY-003'];
  },

  finish_session(state, { session }, work) {
    openSession(state, session);
    requireNoRun(state);
    closeSession(work, state.session.commits > 0 ? 'completed' : 'failed');
    return ['SESS-004'];
  },

  run_now(state, { now, handler }) {
    requireGate(state, now);
    const row = state.handlers.find(({ declared }) => declared.name === handler);
    refuseIf(!row, 'handler_unknown', handler);
    Object.assign(row, row.declared.kind === 'consumer' ? { dirty: true } : { due_at: now });
    return ['USER-003'];
  },

  begin(state, command, work) {
    const run = runInPhase(state, command.run, '', 'pending');
    run.phase = run.kind === 'consumer' ? 'preparing' : 'executing';
    callHandler(work, run, run.kind === 'consumer' ? 'prepare' : 'producer');
    return ['PHASE-003'];
  },

  prepared(state, { now, run: id, reservations, data, title, wake_at }) {
    const run = runInPhase(state, id, 'consumer', 'preparing');
    const row = handlerOf(state, run);
    requireSize(state, data);
    const events = [];
    for (const key of reservations) {
      refuseIf(!row.declared.subscribes.includes(key.topic), 'not_subscribed', key.topic);
      const event = findEvent(state, key);
      refuseIf(!event, 'event_unknown', key.id);
      refuseIf(event.status !== 'pending', 'event_not_pending', key.id);
      refuseIf(events.includes(event), 'reserved_twice');
      events.push(event);
    }
    for (const event of events) Object.assign(event, { status: 'reserved', owner: id });
    Object.assign(run, { phase: 'prepared', reserved: reservations, causes: rootsOf(events), data, title });
    const { wake_min_ms, wake_max_ms } = state.policy;
    row.wake_at = wake_at === null ? 0 : Math.min(Math.max(wake_at, now + wake_min_ms), now + wake_max_ms);
    return ['PHASE-004', 'EVENT-003', 'SCHED-007'];
  },

  mutating(state, command, work) {
    const run = runInPhase(state, command.run, 'consumer', 'prepared');
    refuseIf(!run.reserved.length, 'nothing_reserved');
    refuseIf(!handlerOf(state, run).declared.has_mutate, 'no_mutate');
    run.phase = 'mutating';
    callHandler(work, run, 'mutate');
    return ['PHASE-005'];
  },

  mutated(state, command) {
    const run = runInPhase(state, command.run, 'consumer', 'mutating');
    refuseIf(state.mutation, 'record_exists');
    run.phase = 'mutated';
    return ['PHASE-008'];
  },

  emitting(state, command, work) {
    const run = runInPhase(state, command.run, 'consumer', 'prepared', 'mutated');
    const mustMutate = run.reserved.length && handlerOf(state, run).declared.has_mutate;
    refuseIf(run.phase === 'prepared' && mustMutate, 'mutate_required');
    refuseIf(run.outcome === 'failure', 'mutation_failed');
    run.phase = 'emitting';
    callHandler(work, run, 'next');
    return ['PHASE-006', 'PHASE-007'];
  },

  commit_consumer(state, command, work) {
    runInPhase(state, command.run, 'consumer', 'emitting');
    refuseIf(state.mutation && state.mutation.status !== 'applied', 'not_applied', state.mutation?.status);
    const [row, run] = commit(work, command, command.publications);
    if (run.reserved.length) row.dirty = true; // SCHED-005
    if (isBroken('dirty-cleared-at-commit')) row.dirty = false;
    return ['COMMIT-001', 'COMMIT-002'];
  },

  commit_producer(state, command, work) {
    const run = runInPhase(state, command.run, 'producer', 'executing');
    const { cron, interval_ms } = handlerOf(state, run).declared;
    const isRight = cron ? command.due_at !== null && command.due_at > run.created_at : command.due_at === null;
    refuseIf(!isRight, 'cron_time', run.handler);
    const [row] = commit(work, command, command.publications);
    const from = isBroken('interval-from-commit') ? command.now : run.created_at;
    row.due_at = cron ? command.due_at : interval_ms ? from + interval_ms : -1;
    return ['COMMIT-003', 'PROD-002', 'PROD-003'];
  },

  record_mutation(state, { now, run: id, tool, params, reconcilable, deadline_ms }) {
    runInPhase(state, id, 'consumer', 'mutating');
    refuseIf(state.mutation, 'record_exists');
    refuseIf(deadline_ms !== null && deadline_ms <= 0, 'bad_deadline', deadline_ms);
    requireSize(state, params);
    const { send_within_ms, call_deadline_ms, clock_skew_ms } = state.policy;
    const send_by = now + send_within_ms;
    state.mutation = {
      run: id, status: 'pending', tool, params, digest: createHash('sha256').update(`${tool}\n${params}`).digest('hex'),
      key: `${state.workflow.replaceAll('%', '%25').replaceAll('/', '%2F')}/${id}`, reconcilable, send_by,
      may_land_until: send_by + (deadline_ms ?? call_deadline_ms) + clock_skew_ms, attempts: 0, next_attempt_at: 0,
      resolved_by: '',
    };
    return ['MUT-002', 'MUT-003', 'MUT-004'];
  },

  send_mutation(state, command, work) {
    activeRun(state, command.run);
    const record = state.mutation;
    refuseIf(!record, 'record_missing');
    refuseIf(record.status !== 'pending', 'mutation_edge', record.status);
    refuseIf(command.now > record.send_by, 'send_by_passed', record.send_by);
    const grant = grantOf(state, record.tool);
    refuseIf(!grant, 'not_granted', record.tool);
    refuseIf(grant.mode === 'ask' && !isApproved(state), 'not_approved', record.digest);
    record.status = 'in_flight';
    if (!isBroken('approval-lasts')) state.approvals = state.approvals.filter((approval) => !isApproval(state, approval));
    const { run, tool, params, key, send_by } = record;
    work.effects.push({ type: 'send', run, tool, params, key, send_by });
    return ['MUT-005', 'PERM-001', 'PERM-002'];
  },

  apply_mutation(state, { run, by, result }) {
    recordFor(state, run, by);
    requireSize(state, result);
    resolve(state, 'applied', by, 'success', result);
    return ['MUT-008', 'MUT-010'];
  },

  fail_mutation(state, { now, run, by, voided, asked_at }, work) {
    const [, record] = recordFor(state, run, by);
    refuseIf(by !== 'call' && asked_at > now, 'asked_later', asked_at);
    const looked = isBroken('answer-is-as-young-as-now') ? now : asked_at;
    refuseIf(by !== 'call' && !voided && looked < record.may_land_until, 'too_early', record.may_land_until);
    return resolveFailed(work, by);
  },

  lose_track(state, command, work) {
    activeRun(state, command.run);
    const record = state.mutation;
    refuseIf(!record, 'record_missing');
    refuseIf(record.status !== 'in_flight', 'mutation_edge', record.status);
    loseTrack(record, command.now);
    if (record.reconcilable) work.effects.push(reconcileOf(record, 'inline', command.now));
    return ['MUT-007'];
  },

  reconcile_retry(state, { now, run, by, early }) {
    const [, record] = recordFor(state, run, by);
    const { reconcile_attempts, reconcile_base_ms, reconcile_max_ms } = state.policy;
    refuseIf(early && now >= record.may_land_until, 'not_early', record.may_land_until);
    refuseIf(!early && record.attempts >= reconcile_attempts, 'attempts_spent');
    if (early) {
      record.next_attempt_at = record.may_land_until;
    } else {
      record.attempts += 1;
      record.next_attempt_at = now + backoff(reconcile_base_ms, reconcile_max_ms, record.attempts);
    }
    return ['MUT-011'];
  },

  exhaust(state, { run, no_method }) {
    const [, record] = recordFor(state, run, 'reconcile');
    const isSpent = record.attempts >= state.policy.reconcile_attempts;
    refuseIf(!isSpent && record.reconcilable && !no_method, 'attempts_left');
    record.status = 'indeterminate';
    if (no_method) record.reconcilable = false;
    return ['MUT-012'];
  },

  end_run(state, command, work) {
    const run = activeRun(state, command.run);
    refuseIf((command.status === 'paused:approval') !== ['auth', 'permission', 'request'].includes(command.cause)
      || (command.status !== 'paused:approval' && command.cause), 'cause_mismatch', command.cause);
    const side = boundary(state);
    refuseIf(command.status === 'paused:reconciliation' && side !== 'UNCERTAIN', 'not_uncertain');
    run.message = command.message;
    if (run.kind === 'consumer') handlerOf(state, run).dirty = true;
    closeSession(work, 'failed');
    if (side === 'UNCERTAIN') endUncertain(state, run, state.mutation, command.now);
    else endCertain(work, run, command, side);
    return ['RUN-007', { BEFORE: 'BOUND-004', AFTER: 'BOUND-005', UNCERTAIN: 'BOUND-006' }[side], 'SESS-005'];
  },

  try_again(state, { now, run }) {
    const [, record] = recordFor(state, run, 'user');
    refuseIf(!record.reconcilable, 'no_reconcile', record.tool);
    Object.assign(record, { status: 'needs_reconcile', attempts: 0, next_attempt_at: now });
    return ['MUT-013'];
  },

  didnt_happen(state, { now, run }, work) {
    const [, record] = recordFor(state, run, 'user');
    refuseIf(now < record.may_land_until, 'too_early', record.may_land_until);
    return resolveFailed(work, 'user_assert_failed');
  },

  skip_mutation(state, command) {
    const [run] = recordFor(state, command.run, 'user');
    resolve(state, 'failed', 'user_skip', 'skipped');
    finish(state, heldBy(state, run), 'skipped');
    return ['MUT-008', 'MUT-015', 'EVENT-006'];
  },

  assert_applied(state, { run, result }) {
    recordFor(state, run, 'user');
    requireSize(state, result);
    resolve(state, 'applied', 'user_assert_applied', 'success', result);
    return ['MUT-008', 'MUT-016'];
  },

  skip_event(state, { key }) {
    const event = findEvent(state, key);
    refuseIf(!event, 'event_unknown', key.id);
    refuseIf(event.status !== 'pending', 'event_not_pending', key.id);
    const isLooking = isActive(state) && state.run.phase === 'preparing';
    refuseIf(isLooking && handlerOf(state, state.run).declared.subscribes.includes(key.topic), 'preparing', key.topic);
    finish(state, [event], 'skipped');
    return ['USER-001', 'USER-002'];
  },

  approve(state, { digest }) {
    const request = standingRequest(state, digest);
    const shares = (approval) => approval.events.some((a) => request.events.some((b) => sameKey(a, b)));
    state.approvals = [...state.approvals.filter((approval) => !shares(approval)), request];
    finish(state, [], '');
    return ['PERM-004', 'PERM-005'];
  },

  reject(state, { digest }) {
    const request = standingRequest(state, digest);
    finish(state, request.events.map((key) => findEvent(state, key)).filter((event) => event?.status === 'pending'), 'skipped');
    return ['PERM-004', 'PERM-006'];
  },

  grant(state, { tool, mode }) {
    const grant = grantOf(state, tool);
    if (grant) grant.mode = mode;
    else state.grants.push({ tool, mode });
    if (state.error?.cause === 'permission' && state.error.tool === tool) state.error = null;
    return ['PERM-001', 'PERM-007'];
  },

  reconnect(state) {
    refuseIf(state.error?.cause !== 'auth', 'no_error');
    state.error = null;
    return ['PERM-008'];
  },

  pause(state) {
    refuseIf(state.status !== 'active', 'workflow_edge', state.status);
    state.status = 'paused';
    return ['WORK-001'];
  },

  resume(state) {
    refuseIf(!['ready', 'paused'].includes(state.status), 'workflow_edge', state.status);
    state.status = 'active';
    return ['WORK-001'];
  },

  clear_error(state) {
    const { kind = '', cause } = state.error ?? {};
    refuseIf(!['internal', 'blocked'].includes(kind), 'no_error', kind);
    refuseIf(kind === 'blocked' && cause === 'logic', 'logic_block');
    state.error = null;
    return ['WORK-004'];
  },

  retry(state) {
    requireNoRun(state);
    for (const row of state.handlers) Object.assign(row, { transient_failures: 0, logic_failures: 0 });
    Object.assign(state, { backoff_until: 0, maintenance: null });
    if (state.error?.kind === 'blocked') state.error = null;
    return ['USER-004'];
  },

  abandon(state, command, work) {
    const run = liveRun(state, command.run);
    requireNoRun(state);
    refuseIf(boundary(state) !== 'AFTER', 'not_after');
    finish(state, heldBy(state, run), 'consumed');
    run.abandoned = true;
    leave(work);
    return ['RETRY-005'];
  },

  deploy(state, { now, version, topics, handlers }) {
    requireNoRun(state);
    const problem = contradiction({ version, topics, handlers });
    refuseIf(problem, 'bad_declaration', problem);
    state.handlers = handlers.map((declared) => deployedRow(state, declared, now));
    Object.assign(state, { version, topics, maintenance: null });
    if (state.status === 'draft') state.status = 'ready';
    if (state.error?.kind === 'blocked' && state.error.cause === 'logic') state.error = null;
    return ['WORK-006', 'WORK-007'];
  },

  publish(state, { publication }) {
    publish(state, publication, '', []);
    return ['EVENT-007', 'EVENT-010'];
  },

  block_workflow(state, { message }) {
    requireNoRun(state);
    refuseIf(state.error, 'error_stands');
    block(state, 'host', '', message);
    return ['WORK-003'];
  },

  enter_maintenance(state) {
    requireNoRun(state);
    refuseIf(isUnresolved(state), 'mutation_unresolved');
    state.maintenance ??= { run: '', handler: '', message: '' };
    return ['WORK-005'];
  },

  exit_maintenance(state) {
    refuseIf(!state.maintenance, 'not_in_maintenance');
    state.maintenance = null;
    return ['WORK-005'];
  },
};
