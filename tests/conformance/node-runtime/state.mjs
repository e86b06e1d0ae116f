// What the other files ask of a state: pure questions, no changes. A state is the JSON document of
// spec/generated/schemas/state.json, and a command, an effect and an outcome are documents too.
import { isBroken } from './broken.mjs';

export const newWorkflow = (workflow, policy) => ({
  workflow, status: 'draft', version: '', topics: [], error: null, maintenance: null, backoff_until: 0, grants: [],
  approvals: [], session: null, run: null, mutation: null, handlers: [], events: [], next_seq: 1, policy,
});

export const sameKey = (a, b) => a.topic === b.topic && a.id === b.id;
export const sameKeys = (a, b) => a.length === b.length && a.every((key, i) => sameKey(key, b[i]));
export const findEvent = (state, key) => state.events.find((event) => sameKey(event.key, key));
export const isActive = (state) => state.run?.status === 'active';

// A handler is the run's own only if it has the run's kind too: a deploy may have given its name to the other kind.
export const handlerOf = (state, run) =>
  state.handlers.find((row) => row.declared.name === run.handler && row.declared.kind === run.kind);

// BOUND-001: an unresolved record is one that nobody can speak for yet.
export function isUnresolved(state) {
  const unresolved = ['in_flight', 'needs_reconcile', 'indeterminate'];
  if (isBroken('in-flight-is-before')) unresolved.shift();
  return state.mutation !== null && unresolved.includes(state.mutation.status);
}

// BOUND-001 to BOUND-003: on which side of its mutation the run stands. The phase is not asked.
export function boundary(state) {
  if (isUnresolved(state)) return 'UNCERTAIN';
  return ['success', 'skipped'].includes(state.run.outcome) ? 'AFTER' : 'BEFORE';
}

// SCHED-001: the first thing that keeps a run from starting, or nothing.
export function closedGate(state, now) {
  if (isActive(state)) return 'run_active';
  if (state.status !== 'active') return 'workflow_not_active';
  if (isUnresolved(state)) return 'mutation_unresolved';
  if (state.error) return 'error_stands';
  if (state.maintenance) return 'in_maintenance';
  if (isBroken('backoff-one-too-long') ? now <= state.backoff_until : now < state.backoff_until) return 'backing_off';
  return '';
}

// EVENT-009 counts code points, and JavaScript counts units.
export const isTooLong = ({ policy }, text) =>
  text.length > policy.json_max_chars && [...text].length > policy.json_max_chars;

// PERM-001 and PERM-002.
export const grantOf = (state, tool) => state.grants.find((grant) => grant.tool === tool);
export const isApproval = (state, approval) =>
  approval.tool === state.mutation.tool && approval.digest === state.mutation.digest &&
  sameKeys(approval.events, state.run.reserved);
export const isApproved = (state) => state.approvals.some((approval) => isApproval(state, approval));

// POLICY-002: the wait after the n-th failure in a row. A power beyond 2^60 is beyond every maximum.
export const backoff = (base, max, n) => (n < 1 ? 0 : Math.min(base * 2 ** Math.min(n - 1, 60), max));

// WORK-005: the repair that maintenance waits for.
export const repairOf = (state) =>
  state.maintenance?.run && !state.error ? { type: 'repair', ...state.maintenance } : null;

export const reconcileOf = ({ run, tool, params, key }, by, now) =>
  ({ type: 'reconcile', run, tool, params, key, by, asked_at: now });
