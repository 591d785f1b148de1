"""Why something is not as wished: a word for programs, a sentence for people that ends with what to type."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.plan import Blocker

MAX_CHARACTERS = 1000
"""Characters of a message: an event has room for 1,024."""


class ObjectVerdict(msgspec.Struct, frozen=True):
    """``reason`` is CamelCase."""

    reason: str
    message: str


def reason_word(rule: str) -> str:
    """A planner's rule as a reason: ``NoInstance`` for ``NO_INSTANCE``."""
    return "".join(part.capitalize() for part in rule.split("_"))


def advice(message: str, step: str) -> str:
    """A sentence with the next command."""
    text = f"{message} | next: {step}" if step else message
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def blocker_verdict(blocker: Blocker) -> ObjectVerdict:
    """Why the planner finds no way, with who is in it."""
    holders = ", ".join(dict.fromkeys(str(h) for h in blocker.holders))
    message = f"{blocker.message}; in use by {holders}" if holders else blocker.message
    step = "shut that down; it then goes on by itself" if blocker.rule == "HELD" else blocker.next_step or ""
    return ObjectVerdict(reason_word(blocker.rule), advice(message, step))


def join_names(words: Iterable[str], limit: int = 8) -> str:
    """Names in a sentence: all of them, or the first and how many more."""
    found = list(words)
    return ", ".join(found[:limit]) + (f" and {len(found) - limit} more" if len(found) > limit else "")
