"""What the world may do when the runtime asks it, in words."""

from typing import Final

FATES: Final[dict[str, str]] = {
    "ok": "all goes well",
    "network": "it fails: no network",
    "script": "it fails: an error of the script",
    "host": "it fails: an error of the host",
    "auth": "it fails: no right to do this",
    "permission": "it fails: the tool is not granted",
    "approval": "it fails: an approval is wanted",
    "rate_limit": "it fails: too many calls",
    "timeout": "it fails: no answer in time",
    "bad_result": "it fails: a result that makes no sense",
    "forbidden": "it fails: a forbidden operation",
    "limit": "it fails: a limit of the sandbox",
    "connector": "it fails: an error of the connector",
    "nothing": "the script takes nothing, or calls nothing",
    "wake": "prepare takes nothing and asks to be woken",
    "refused": "the target refuses the call for good",
    "silent": "the call is lost, and no answer comes",
    "applied": "the call takes effect, and no answer comes",
    "slow": "all goes well, but the answer takes minutes",
    "unsure": "reconcile can not tell",
    "no method": "the tool can not be reconciled",
    "voided": "reconcile voids the call's key, and did not find it",
    "killed": "the runtime is killed before anything happens outside",
    "killed late": "it happens outside, and the runtime is killed before it hears of it",
    "killed after": "the runtime is killed right after it got its answer",
}
"""Fate -> what happens. Where one has no meaning all goes well, but a call that no answer follows is never repeated."""
