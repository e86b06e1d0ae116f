// step(state, command): the one transition function (STEP-001). A command works on a copy of the state, and throws when
// it is refused; then nothing has changed (STEP-002).
import { createHash } from 'node:crypto';
import { isBroken } from './broken.mjs';
import {
  activeRun, answerRequest, block, closeSession, commit, contradiction, deployedRow, endRun, enter,
  finish, handlerNamed, heldBy, leave, liveRun, loseTrack, openSession, pendingEvent, publish, recordFor, recordIn,
  refuseIf, requireBudget, requireGate, requireNoRun, requireSize, resolve, resolveFailed, rootsOf, runInPhase,
  startRun,
} from './parts.mjs';
import {
  backoff, boundary, findEvent, grantOf, handlerOf, isActive, isApproval, isApproved, isUnresolved, reconcileOf,
  sameKey,
} from './state.mjs';

export function step(state, command) {
  const retired = { run: null, mutation: null, session: null };
  const work = { state: structuredClone(state), now: command.now, effects: [], retired };
  try {
    COMMANDS[command.type](work.state, command, work);
    return { type: 'accepted', state: work.state, effects: work.effects, retired };
  } catch (refusal) {
    if (refusal.type === 'rejected') return refusal;
    throw refusal;
  }
}

export const COMMANDS = {
  start_session(state, { now, session }) {
    requireGate(state, now);
    refuseIf(state.session, 'session_open');
    refuseIf(!session, 'id_empty');
    state.session = { id: session, status: 'open', runs: 0, commits: 0 };
  },
  create_run(state, command) {
    requireGate(state, command.now);
    requireBudget(state, command.session);
    refuseIf(state.run, 'retry_pending');
    const row = handlerNamed(state, command.handler);
    startRun(state, command, row);
    if (!isBroken('dirty-at-start')) row.dirty = false;
  },
  create_retry(state, command, work) {
    requireGate(state, command.now);
    requireBudget(state, command.session);
    const old = state.run;
    refuseIf(old?.id !== command.retry_of, 'not_pending_retry', command.retry_of);
    refuseIf(boundary(state) !== 'AFTER', 'not_after');
    const row = handlerOf(state, old);
    refuseIf(!row, 'handler_removed', old.handler);
    refuseIf(command.run === old.id, 'id_in_use', command.run);
    for (const event of heldBy(state, old)) event.owner = command.run;
    leave(work);
    const { outcome, reserved, causes, data, title } = old;
    const result = isBroken('retry-forgets-result') ? '' : old.result;
    startRun(state, command, row, { retry_of: old.id, outcome, reserved, causes, data, title, result });
    row.dirty = false;
    enter(work, 'emitting', 'next');
  },
  finish_session(state, { session }, work) {
    openSession(state, session);
    requireNoRun(state);
    closeSession(work, state.session.commits > 0 ? 'completed' : 'failed');
  },
  run_now(state, { now, handler }) {
    requireGate(state, now);
    const row = handlerNamed(state, handler);
    Object.assign(row, row.declared.kind === 'consumer' ? { dirty: true } : { due_at: now });
  },
  begin(state, command, work) {
    const run = runInPhase(state, command.run, undefined, 'pending');
    if (run.kind === 'consumer') enter(work, 'preparing', 'prepare');
    else enter(work, 'executing', 'producer');
  },
  prepared(state, { now, run: id, reservations, data, title, wake_at }) {
    const run = runInPhase(state, id, 'consumer', 'preparing');
    const row = handlerOf(state, run);
    requireSize(state, data);
    for (const { topic } of reservations) refuseIf(!row.declared.subscribes.includes(topic), 'not_subscribed', topic);
    const events = reservations.map((key) => pendingEvent(state, key));
    refuseIf(new Set(events).size < events.length, 'reserved_twice');
    for (const event of events) Object.assign(event, { status: 'reserved', owner: id });
    Object.assign(run, { phase: 'prepared', reserved: reservations, causes: rootsOf(events), data, title });
    const { wake_min_ms, wake_max_ms } = state.policy;
    row.wake_at = wake_at === null ? 0 : Math.max(Math.min(wake_at, now + wake_max_ms), now + wake_min_ms);
  },
  mutating(state, command, work) {
    const run = runInPhase(state, command.run, 'consumer', 'prepared');
    refuseIf(!run.reserved.length, 'nothing_reserved');
    refuseIf(!handlerOf(state, run).declared.has_mutate, 'no_mutate');
    enter(work, 'mutating', 'mutate');
  },
  mutated(state, command) {
    const run = runInPhase(state, command.run, 'consumer', 'mutating');
    refuseIf(state.mutation, 'record_exists');
    run.phase = 'mutated';
  },
  emitting(state, command, work) {
    const run = runInPhase(state, command.run, 'consumer', 'prepared', 'mutated');
    const mustMutate = run.reserved.length && handlerOf(state, run).declared.has_mutate;
    refuseIf(run.phase === 'prepared' && mustMutate, 'mutate_required');
    refuseIf(run.outcome === 'failure', 'mutation_failed');
    enter(work, 'emitting', 'next');
  },
  commit_consumer(state, command, work) {
    runInPhase(state, command.run, 'consumer', 'emitting');
    refuseIf(state.mutation && state.mutation.status !== 'applied', 'record_open', state.mutation?.status);
    const [row, run] = commit(work, command);
    if (run.reserved.length) row.dirty = true; // SCHED-005
  },
  commit_producer(state, command, work) {
    const run = runInPhase(state, command.run, 'producer', 'executing');
    const { cron, interval_ms } = handlerOf(state, run).declared;
    const isRight = cron ? command.due_at !== null && command.due_at > run.created_at : command.due_at === null;
    refuseIf(!isRight, 'cron_time', run.handler);
    const [row] = commit(work, command);
    const from = isBroken('interval-from-commit') ? command.now : run.created_at;
    row.due_at = cron ? command.due_at : interval_ms ? from + interval_ms : -1;
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
  },
  send_mutation(state, command, work) {
    runInPhase(state, command.run, 'consumer', 'mutating');
    const record = recordIn(state, 'pending');
    refuseIf(command.now > record.send_by, 'send_by_passed', record.send_by);
    const grant = grantOf(state, record.tool);
    refuseIf(!grant, 'not_granted', record.tool);
    refuseIf(grant.mode === 'ask' && !isApproved(state), 'not_approved', record.digest);
    record.status = 'in_flight';
    const isLeft = (approval) => isBroken('approval-lasts') || !isApproval(state, approval);
    state.approvals = state.approvals.filter(isLeft);
    const { run, tool, params, key, send_by } = record;
    work.effects.push({ type: 'send', run, tool, params, key, send_by });
  },
  apply_mutation(state, { run, by, result }) {
    recordFor(state, run, by);
    requireSize(state, result);
    resolve(state, 'applied', by, 'success', result);
  },
  fail_mutation(state, { now, run, by, voided, asked_at }, work) {
    const record = recordFor(state, run, by);
    refuseIf(by !== 'call' && asked_at > now, 'asked_later', asked_at);
    const looked = isBroken('answer-is-as-young-as-now') ? now : asked_at;
    refuseIf(by !== 'call' && !voided && looked < record.may_land_until, 'too_early', record.may_land_until);
    resolveFailed(work, by);
  },
  lose_track(state, command, work) {
    activeRun(state, command.run, 'consumer');
    const record = recordIn(state, 'in_flight');
    loseTrack(record, command.now);
    if (record.reconcilable) work.effects.push(reconcileOf(record, 'inline', command.now));
  },
  reconcile_retry(state, { now, run, by, early }) {
    const record = recordFor(state, run, by);
    const { reconcile_attempts, reconcile_base_ms, reconcile_max_ms } = state.policy;
    refuseIf(early && now >= record.may_land_until, 'not_early', record.may_land_until);
    refuseIf(!early && record.attempts >= reconcile_attempts, 'attempts_spent');
    if (!early) record.attempts += 1;
    const next = now + backoff(reconcile_base_ms, reconcile_max_ms, record.attempts);
    record.next_attempt_at = early ? record.may_land_until : next;
  },
  exhaust(state, { run, no_method }) {
    const record = recordFor(state, run, 'reconcile');
    const isSpent = record.attempts >= state.policy.reconcile_attempts;
    refuseIf(!isSpent && record.reconcilable && !no_method, 'attempts_left');
    record.status = 'indeterminate';
    if (no_method) record.reconcilable = false;
  },
  end_run(state, command, work) {
    const run = activeRun(state, command.run);
    const causes = command.status === 'paused:approval' ? ['auth', 'permission', 'request'] : [''];
    refuseIf(!causes.includes(command.cause), 'cause_mismatch', command.cause);
    const side = boundary(state);
    refuseIf(command.status === 'paused:reconciliation' && side !== 'UNCERTAIN', 'not_uncertain');
    run.message = command.message;
    if (run.kind === 'consumer') handlerOf(state, run).dirty = true;
    closeSession(work, 'failed');
    endRun(work, command, side);
  },
  try_again(state, { now, run }) {
    const record = recordFor(state, run, 'user');
    refuseIf(!record.reconcilable, 'no_reconcile', record.tool);
    Object.assign(record, { status: 'needs_reconcile', attempts: 0, next_attempt_at: now });
  },
  didnt_happen(state, { now, run }, work) {
    const record = recordFor(state, run, 'user');
    refuseIf(now < record.may_land_until, 'too_early', record.may_land_until);
    resolveFailed(work, 'user_assert_failed');
  },
  skip_mutation(state, command) {
    recordFor(state, command.run, 'user');
    resolve(state, 'failed', 'user_skip', 'skipped');
    finish(state, heldBy(state, state.run), 'skipped');
  },
  assert_applied(state, { run, result }) {
    recordFor(state, run, 'user');
    requireSize(state, result);
    resolve(state, 'applied', 'user_assert_applied', 'success', result);
  },
  skip_event(state, { key }) {
    const event = pendingEvent(state, key);
    const isLooking = isActive(state) && state.run.phase === 'preparing';
    refuseIf(isLooking && handlerOf(state, state.run).declared.subscribes.includes(key.topic), 'preparing', key.topic);
    finish(state, [event], 'skipped');
  },
  approve(state, { digest }) {
    const request = answerRequest(state, digest);
    const shares = (approval) => approval.events.some((a) => request.events.some((b) => sameKey(a, b)));
    state.approvals = [...state.approvals.filter((approval) => !shares(approval)), request];
    finish(state, [], '');
  },
  reject(state, { digest }) {
    const request = answerRequest(state, digest);
    const events = request.events.map((key) => findEvent(state, key));
    finish(state, events.filter((event) => event?.status === 'pending'), 'skipped');
  },
  grant(state, { tool, mode }) {
    const grant = grantOf(state, tool);
    if (grant) grant.mode = mode;
    else state.grants.push({ tool, mode });
    if (state.error?.cause === 'permission' && state.error.tool === tool) state.error = null;
  },
  reconnect(state) {
    refuseIf(state.error?.cause !== 'auth', 'no_error');
    state.error = null;
  },
  pause(state) {
    refuseIf(state.status !== 'active', 'workflow_edge', state.status);
    state.status = 'paused';
  },
  resume(state) {
    refuseIf(!['ready', 'paused'].includes(state.status), 'workflow_edge', state.status);
    state.status = 'active';
  },
  clear_error(state) {
    const { kind = '', cause } = state.error ?? {};
    refuseIf(!['internal', 'blocked'].includes(kind), 'no_error', kind);
    refuseIf(kind === 'blocked' && cause === 'logic', 'logic_block');
    state.error = null;
  },
  retry(state) {
    requireNoRun(state);
    for (const row of state.handlers) Object.assign(row, { transient_failures: 0, logic_failures: 0 });
    Object.assign(state, { backoff_until: 0, maintenance: null });
    if (state.error?.kind === 'blocked') state.error = null;
  },
  abandon(state, command, work) {
    const run = liveRun(state, command.run);
    requireNoRun(state);
    refuseIf(boundary(state) !== 'AFTER', 'not_after');
    finish(state, heldBy(state, run), 'consumed');
    run.abandoned = true;
    leave(work);
  },
  deploy(state, { now, version, topics, handlers }) {
    requireNoRun(state);
    const problem = contradiction({ version, topics, handlers });
    refuseIf(problem, 'bad_declaration', problem);
    state.handlers = handlers.map((declared) => deployedRow(state, declared, now));
    Object.assign(state, { version, topics, maintenance: null });
    if (state.status === 'draft') state.status = 'ready';
    if (state.error?.kind === 'blocked' && state.error.cause === 'logic') state.error = null;
  },
  publish: (state, { publication }) => publish(state, publication, '', []),
  block_workflow(state, { message }) {
    requireNoRun(state);
    refuseIf(state.error, 'error_stands');
    block(state, 'host', '', message);
  },
  enter_maintenance(state) {
    requireNoRun(state);
    refuseIf(isUnresolved(state), 'mutation_unresolved');
    state.maintenance ??= { run: '', handler: '', message: '' };
  },
  exit_maintenance(state) {
    refuseIf(!state.maintenance, 'not_in_maintenance');
    state.maintenance = null;
  },
};
