"""Why something is not as wished: a word for programs, a sentence for people that ends with what to type."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.plan import Blocker

MOST = 1000
"""Characters of a message: an event has room for 1,024."""


class Verdict(msgspec.Struct, frozen=True):
    """``reason`` is CamelCase."""

    reason: str
    message: str


def word(rule: str) -> str:
    """A planner's rule as a reason: ``NoInstance`` for ``NO_INSTANCE``."""
    return "".join(part.capitalize() for part in rule.split("_"))


def advice(message: str, step: str) -> str:
    """A sentence with the next command."""
    text = f"{message} | next: {step}" if step else message
    return text if len(text) <= MOST else text[: MOST - 1] + "…"


def verdict(blocker: Blocker) -> Verdict:
    """Why the planner finds no way, with who is in it."""
    holders = ", ".join(dict.fromkeys(str(h) for h in blocker.holders))
    message = f"{blocker.message}; in use by {holders}" if holders else blocker.message
    step = "shut that down; it then goes on by itself" if blocker.rule == "HELD" else blocker.next_step or ""
    return Verdict(word(blocker.rule), advice(message, step))


def listed(words: Iterable[str], most: int = 8) -> str:
    """Names in a sentence: all of them, or the first and how many more."""
    found = list(words)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
