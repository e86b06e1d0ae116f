"""The numbers and the arithmetic on them."""

import pytest
from flow import flow

from keepkernel import Policy, backoff_ms, clamp_wake, interval_ms, send_window

DAY_MS = 86_400_000


@pytest.mark.rule("POLICY-001")
def test_the_defaults_are_the_laws_and_belong_to_the_state() -> None:
    assert Policy()._asdict() == {
        "backoff_base_ms": 10_000,
        "backoff_max_ms": 600_000,
        "transient_retries": 5,
        "logic_failures": 3,
        "reconcile_base_ms": 10_000,
        "reconcile_max_ms": 600_000,
        "reconcile_attempts": 5,
        "send_within_ms": 30_000,
        "call_deadline_ms": 60_000,
        "clock_skew_ms": 5_000,
        "wake_min_ms": 30_000,
        "wake_max_ms": DAY_MS,
        "session_runs": 100,
        "handler_call_ms": 300_000,
        "peek_default": 100,
        "peek_max": 1_000,
        "json_max_chars": 1_000_000,
    }
    assert flow().state.policy == Policy()
    assert flow(session_runs=7).deployed().state.policy == Policy(session_runs=7)


@pytest.mark.rule("POLICY-002")
def test_the_wait_doubles_up_to_its_limit() -> None:
    assert [backoff_ms(n, 10, 600) for n in (-1, 0, 1, 2, 3, 6, 7, 8, 10**6)] == [0, 0, 10, 20, 40, 320, 600, 600, 600]
    assert backoff_ms(1, 10, 5) == 5
    assert backoff_ms(2, 10, 20) == backoff_ms(3, 10, 20) == 20
    assert [backoff_ms(n, 1, 600) for n in (1, 2, 3)] == [1, 2, 4]


@pytest.mark.rule("POLICY-002")
def test_a_huge_count_costs_nothing() -> None:
    assert backoff_ms(10**30, 10, 600) == 600
    assert backoff_ms(10**30, 0, 600) == 0


@pytest.mark.rule("POLICY-003")
def test_a_wake_time_is_clamped() -> None:
    now = 1_000
    for asked, given in (
        (-5, now + 30_000),
        (now + 29_999, now + 30_000),
        (now + 30_001, now + 30_001),
        (now + DAY_MS, now + DAY_MS),
        (now + DAY_MS + 1, now + DAY_MS),
    ):
        assert clamp_wake(asked, now, Policy()) == given


@pytest.mark.rule("POLICY-004")
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("1s", 1_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3660d", 3_660 * DAY_MS),
        ("007s", 7_000),
        ("000000001s", 1_000),
    ],
)
def test_an_interval_is_digits_and_a_unit(text: str, length: int) -> None:
    assert interval_ms(text) == length


@pytest.mark.rule("POLICY-004")
@pytest.mark.parametrize(
    "text", ["", "s", "5", "0s", "-5m", "5 m", " 5m", "5m\n", "5M", "1.5h", "٣s", "3661d", "1234567890s", "5m5s", "5w"]
)
def test_anything_else_is_no_interval(text: str) -> None:
    assert interval_ms(text) is None


@pytest.mark.rule("POLICY-005")
def test_a_call_has_landed_when_its_window_is_over() -> None:
    assert send_window(1_000, 60_000, Policy()) == (31_000, 96_000)
    policy = Policy(send_within_ms=1, clock_skew_ms=20)
    assert send_window(5_000, 300, policy) == (5_001, 5_321)
