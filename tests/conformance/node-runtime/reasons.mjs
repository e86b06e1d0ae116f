// Every reason for a rejection with the rule that it comes from, and whose fault it is (HOST-003).
const BY_RULE = `
  SCHED-001 run_active workflow_not_active mutation_unresolved error_stands in_maintenance backing_off
  SCHED-003 retry_pending
  RUN-002 run_not_active | RUN-003 run_unknown | RUN-004 handler_unknown wrong_kind | RUN-006 id_empty id_in_use
  RUN-007 not_uncertain | RUN-008 cause_mismatch
  RETRY-001 not_pending_retry not_after | RETRY-004 handler_removed
  SESS-002 session_open | SESS-003 session_unknown session_spent
  PHASE-001 phase | PHASE-005 nothing_reserved no_mutate | PHASE-006 mutate_required | PHASE-007 mutation_failed
  COMMIT-001 not_applied | PROD-003 cron_time
  EVENT-004 not_subscribed event_unknown event_not_pending reserved_twice
  EVENT-007 topic_unknown | EVENT-008 title_missing | EVENT-009 too_large
  MUT-001 mutation_edge | MUT-002 record_missing | MUT-003 record_exists | MUT-004 bad_deadline | MUT-005 send_by_passed
  MUT-008 author | MUT-009 too_early asked_later | MUT-011 attempts_spent not_early | MUT-012 attempts_left
  MUT-013 no_reconcile
  PERM-001 not_granted | PERM-002 not_approved | PERM-003 nothing_asked | PERM-004 no_request
  WORK-001 workflow_edge | WORK-004 no_error logic_block | WORK-005 not_in_maintenance | WORK-006 bad_declaration
  USER-002 preparing`;

const FAULTS = {
  script: ['not_subscribed', 'event_unknown', 'event_not_pending', 'reserved_twice', 'topic_unknown', 'title_missing',
    'too_large'],
  transient: ['send_by_passed', 'nothing_asked'],
  permission: ['not_granted'],
  approval: ['not_approved'],
};

export const RULES = Object.fromEntries(BY_RULE.split(/[\n|]/).flatMap((line) => {
  const [rule, ...reasons] = line.trim().split(' ');
  return reasons.map((reason) => [reason, rule]);
}));

export const faultOf = (reason) => Object.keys(FAULTS).find((fault) => FAULTS[fault].includes(reason)) ?? 'caller';
