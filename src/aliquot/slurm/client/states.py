"""Uniform spelling of states and reasons from text and JSON."""

from __future__ import annotations

from collections.abc import Iterable

_NODE_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWERING_DOWN_PENDING",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_NODE_WORDS = {"INVAL": "INVALID_REG", "ALLOC": "ALLOCATED", "MIX": "MIXED", "COMP": "COMPLETING"}
ENDED = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "LAUNCH_FAILED",
        "RECONFIG_FAIL",
    }
)
"""A job with one of these states, and none of ``_HOLDING``, neither has resources nor waits for them."""
_HOLDING = ("COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED")
_WAITING = frozenset({"REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


def node_states(words: Iterable[str]) -> frozenset[str]:
    """Return the states of a node (``IDLE*``, ``drained``, ``INVAL``) spelled out, in capitals."""
    found: set[str] = set()
    for word in words:
        while word and word[-1] in _NODE_MARKS:
            found.add(_NODE_MARKS[word[-1]])
            word = word[:-1]
        if word:
            found.add(_NODE_WORDS.get(word.upper(), word.upper()))
    return frozenset(found)


def job_state(words: Iterable[str]) -> str:
    """Return one state for a base state and its flags.

    A flag of a job that has resources takes precedence over the base state. Every kind of waiting is PENDING.
    """
    states = [w.upper() for w in words if w]
    for flag in _HOLDING:
        if flag in states:
            return flag
    if set(states) & _WAITING:
        return "PENDING"
    return states[0] if states else "UNKNOWN"


def has_ended(state: str) -> bool:
    return state in ENDED


def reason_word(text: str) -> str:
    """Return the name of a reason, also if slurmctld replaced it with a sentence."""
    if text.replace("_", " ").startswith("Nodes required for job are DOWN"):
        return "Resources"
    return text.partition(",")[0].partition("(")[0].strip()
