"""Every number of the model in one value, and the arithmetic on it (POLICY rules).

The kernel does the arithmetic; the clock is the host's. All times are whole milliseconds.
"""

import re
from typing import NamedTuple

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

UNIT_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
INTERVAL = re.compile(r"[0-9]{1,9}[smhd]")
INTERVAL_MAX_MS = 3_660 * DAY_MS


class Policy(NamedTuple):
    """The numbers that tests and users may set; the defaults are the law's (POLICY-001)."""

    backoff_base_ms: int = 10 * SECOND_MS
    backoff_max_ms: int = 600 * SECOND_MS
    transient_retries: int = 5
    logic_failures: int = 3
    reconcile_base_ms: int = 10 * SECOND_MS
    reconcile_max_ms: int = 600 * SECOND_MS
    reconcile_attempts: int = 5
    send_within_ms: int = 30 * SECOND_MS
    call_deadline_ms: int = 60 * SECOND_MS
    clock_skew_ms: int = 5 * SECOND_MS
    wake_min_ms: int = 30 * SECOND_MS
    wake_max_ms: int = DAY_MS
    session_runs: int = 100
    handler_call_ms: int = 300 * SECOND_MS
    peek_default: int = 100
    peek_max: int = 1_000
    json_max_chars: int = 1_000_000


def backoff_ms(attempt: int, base_ms: int, max_ms: int) -> int:
    """The wait after the n-th failure in a row: base · 2^(n−1), at most max (POLICY-002).

    >>> [backoff_ms(n, 10_000, 600_000) // 1000 for n in (1, 2, 3, 6, 7, 99)]
    [10, 20, 40, 320, 600, 600]
    """
    if attempt < 1:
        return 0
    # Doubling stops as soon as it changes nothing, so a huge count costs nothing.
    wait = base_ms
    for _ in range(attempt - 1):
        if not 0 < wait < max_ms:
            break
        wait *= 2
    return min(wait, max_ms)


def clamp_wake(wake_at: int, now: int, policy: Policy) -> int:
    """When a consumer that asked to be woken is woken: 30 s to 24 h from now (POLICY-003).

    >>> clamp_wake(0, 1_000, Policy()), clamp_wake(10**15, 1_000, Policy())
    (31000, 86401000)
    """
    return max(now + policy.wake_min_ms, min(wake_at, now + policy.wake_max_ms))


def interval_ms(text: str) -> int | None:
    """The length of an interval such as "5m"; None when it is not one (POLICY-004).

    >>> interval_ms("5m"), interval_ms("0s"), interval_ms("5 minutes")
    (300000, None, None)
    """
    if not INTERVAL.fullmatch(text):
        return None
    length = int(text[:-1]) * UNIT_MS[text[-1]]
    return length if 0 < length <= INTERVAL_MAX_MS else None


def send_window(now: int, deadline_ms: int, policy: Policy) -> tuple[int, int]:
    """(send_by, may_land_until) of a record made now (POLICY-005).

    After `send_by` no host sends. A call sent at the last moment, by a clock that lags by the allowed skew,
    and that takes the connector's whole deadline, lands by `may_land_until`.

    >>> send_window(0, 60_000, Policy())
    (30000, 95000)
    """
    send_by = now + policy.send_within_ms
    return send_by, send_by + deadline_ms + policy.clock_skew_ms
