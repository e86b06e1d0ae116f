"""Transitions that a person or the host asks for, outside any run."""

from . import boundary, events, failures, gate
from .commands import (
    Abandon,
    Approve,
    BlockWorkflow,
    ClearError,
    Deploy,
    EnterMaintenance,
    ExitMaintenance,
    Grant,
    Pause,
    Publish,
    Reconnect,
    Reject,
    Resume,
    Retry,
    SkipEvent,
)
from .reasons import present, require
from .runs import accept, live_run
from .tables import WORKFLOW_STATUS
from .types import (
    Accepted,
    Declaration,
    Error,
    Handler,
    Maintenance,
    Permission,
    Request,
    Retired,
    State,
    WorkflowStatus,
)


def require_idle(state: State) -> None:
    require(gate.active(state) is None, "run_active")


# --- events ------------------------------------------------------------------------------------------


def publish(state: State, c: Publish) -> Accepted:
    return accept(events.publish(state, (c.publication,), "", ()), "EVENT-007", "EVENT-010")


def skip_event(state: State, c: SkipEvent) -> Accepted:
    event = present(next((e for e in state.events if e.key == c.key), None), "event_unknown", c.key.id)
    require(event.status == "pending", "event_not_pending", c.key.id)
    require(not preparing(state, c.key.topic), "preparing", c.key.topic)
    return accept(events.skip_pending(state, (c.key,)), "USER-001", "USER-002")


def preparing(state: State, topic: str) -> bool:
    """Whether a prepare may be looking at this topic, so that a script is not blamed for a click (USER-002)."""
    run = gate.active(state)
    row = failures.handler_row(state, run.handler) if run and run.phase == "preparing" else None
    return row is not None and topic in row.declared.subscribes


def abandon(state: State, c: Abandon) -> Accepted:
    run = live_run(state, c.run)
    require_idle(state)
    require(boundary.side(run, state.mutation) == "AFTER", "not_after")
    retired = Retired(run=run._replace(abandoned=True), mutation=state.mutation)
    return accept(events.consume(state)._replace(run=None, mutation=None), "RETRY-005", retired=retired)


# --- permissions -------------------------------------------------------------------------------------


def request_of(state: State, digest: str) -> Request:
    request = present(state.error.request if state.error else None, "no_request", digest)
    require(request.digest == digest, "no_request", digest)
    return request


def approve(state: State, c: Approve) -> Accepted:
    request = request_of(state, c.digest)
    # An event may have been skipped while the request waited; such an approval is dropped at once.
    state = events.drop_approvals(events.add_approval(state, request))
    return accept(state._replace(error=None), "PERM-004", "PERM-005")


def reject(state: State, c: Reject) -> Accepted:
    request = request_of(state, c.digest)
    return accept(events.skip_pending(state, request.events)._replace(error=None), "PERM-004", "PERM-006")


def grant(state: State, c: Grant) -> Accepted:
    others = tuple(g for g in state.grants if g.tool != c.tool)
    state = state._replace(grants=(*others, Permission(c.tool, c.mode)))
    if answered_by(state.error, "permission", c.tool):
        state = state._replace(error=None)
    return accept(state, "PERM-001", "PERM-007")


def reconnect(state: State, c: Reconnect) -> Accepted:
    require(answered_by(state.error, "auth"), "no_error")
    return accept(state._replace(error=None), "PERM-008")


def answered_by(error: Error | None, cause: str, tool: str | None = None) -> bool:
    """Whether an approval error is the one that this action answers (WORK-002)."""
    if error is None or error.kind != "approval" or error.cause != cause:
        return False
    return tool is None or error.tool == tool


# --- the workflow ------------------------------------------------------------------------------------


def with_status(state: State, trigger: str) -> State:
    status: WorkflowStatus = present(WORKFLOW_STATUS.get((state.status, trigger)), "workflow_edge", state.status)
    return state._replace(status=status)


def pause(state: State, c: Pause) -> Accepted:
    return accept(with_status(state, "pause"), "WORK-001")


def resume(state: State, c: Resume) -> Accepted:
    return accept(with_status(state, "resume"), "WORK-001")


def clear_error(state: State, c: ClearError) -> Accepted:
    error = present(state.error, "no_error")
    require(error.kind in ("internal", "blocked"), "no_error", error.kind)
    require(error.cause != "logic", "logic_block")
    return accept(state._replace(error=None), "WORK-004")


def retry(state: State, c: Retry) -> Accepted:
    require_idle(state)
    rows = tuple(h._replace(transient_failures=0, logic_failures=0) for h in state.handlers)
    error = None if state.error is None or state.error.kind == "blocked" else state.error
    return accept(state._replace(handlers=rows, backoff_until=0, maintenance=None, error=error), "USER-004")


def block_workflow(state: State, c: BlockWorkflow) -> Accepted:
    require_idle(state)
    require(state.error is None, "error_stands")
    return accept(state._replace(error=Error("blocked", "host", "", c.message, "", None)), "WORK-003")


def enter_maintenance(state: State, c: EnterMaintenance) -> Accepted:
    require_idle(state)
    require(not boundary.unresolved(state.mutation), "mutation_unresolved")
    # A repair that is under way keeps its evidence.
    return accept(state._replace(maintenance=state.maintenance or Maintenance("", "", "")), "WORK-005")


def exit_maintenance(state: State, c: ExitMaintenance) -> Accepted:
    require(state.maintenance is not None, "not_in_maintenance")
    return accept(state._replace(maintenance=None), "WORK-005")


# --- deploy ------------------------------------------------------------------------------------------


def deploy(state: State, c: Deploy) -> Accepted:
    require_idle(state)
    require_declaration(c)
    rows = tuple(deployed(failures.handler_row(state, d.name), d, c.now) for d in c.handlers)
    state = state._replace(version=c.version, topics=c.topics, handlers=rows, maintenance=None)
    if state.status == "draft":
        state = with_status(state, "deploy")
    if state.error is not None and state.error.cause == "logic":
        state = state._replace(error=None)
    return accept(state, "WORK-006", "WORK-007")


def deployed(row: Handler | None, declared: Declaration, now: int) -> Handler:
    """A handler's row under a new version: what it earned stays, and it gets a look (WORK-007)."""
    consumer = declared.kind == "consumer"
    at_once = -1 if consumer else now
    if row is None or row.declared.kind != declared.kind:
        return Handler(declared, "", consumer, 0, at_once, 0, 0)
    kept = (row.declared.interval_ms, row.declared.cron) == (declared.interval_ms, declared.cron)
    return row._replace(declared=declared, dirty=consumer, due_at=row.due_at if kept else at_once)


def require_declaration(c: Deploy) -> None:
    """The declaration makes sense on its own (WORK-006, PROD-001)."""
    names = [h.name for h in c.handlers]
    subscribed = [topic for h in c.handlers for topic in h.subscribes]
    require(bool(c.version), "bad_declaration", "a version needs a name")
    require(all(c.topics) and all(names), "bad_declaration", "a topic or handler has no name")
    require(len(set(c.topics)) == len(c.topics), "bad_declaration", "a topic stands twice")
    require(len(set(names)) == len(names), "bad_declaration", "a handler stands twice")
    require(len(set(subscribed)) == len(subscribed), "bad_declaration", "a topic has two consumers")
    require(set(subscribed) <= set(c.topics), "bad_declaration", "a subscribed topic is not declared")
    for h in c.handlers:
        if h.kind == "consumer":
            require(bool(h.subscribes), "bad_declaration", f"{h.name} subscribes to nothing")
            require(
                not h.interval_ms and not h.cron,
                "bad_declaration",
                f"{h.name} is a consumer with a schedule",
            )
        else:
            require(
                not h.subscribes and not h.has_mutate,
                "bad_declaration",
                f"{h.name} is a producer that consumes",
            )
            require(h.interval_ms >= 0, "bad_declaration", f"{h.name} has a negative interval")
            require(not (h.interval_ms and h.cron), "bad_declaration", f"{h.name} has two schedules")
