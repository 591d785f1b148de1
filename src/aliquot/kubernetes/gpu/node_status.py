"""What the agent tells about a node: one state word as the peers have, and all that the word leaves out."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.kubernetes.gpu.names import LabelState

LIMIT = 1024
"""Characters of a sentence in an annotation and in an event (an event's message has room for 1,024)."""


class AgentStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``state``: pending, rebooting, success, failed, or "" where nobody wishes anything. ``reason`` is a word for
    programs (``Applied``, ``Held``, ``UnknownConfig``), ``message`` the sentence for people, ``next_step`` what to
    type. ``digest`` tells an edited config from the former one; ``since`` is when state or reason last changed,
    RFC 3339; ``progress`` is ``done/all`` actions.
    """

    state: Stored[LabelState | Literal[""]]
    reason: str
    message: str
    config: str = ""
    source: str = ""
    next_step: str = ""
    digest: str = ""
    progress: str = ""
    since: str = ""
    details: tuple[str, ...] = ()

    def same_as(self, other: AgentStatus | None) -> bool:
        """True if the other says the same, whenever it was said."""
        return other is not None and msgspec.structs.replace(self, since=other.since) == other

    def differs_from(self, other: AgentStatus | None) -> bool:
        """True if this is news: another state, reason or wish."""
        return other is None or (self.state, self.reason, self.config) != (other.state, other.reason, other.config)

    def with_since(self, now: float, previous: AgentStatus | None) -> AgentStatus:
        """Stamped: ``since`` stays while nothing moved."""
        if previous is not None and previous.since and not self.differs_from(previous):
            return msgspec.structs.replace(self, since=previous.since)
        return msgspec.structs.replace(self, since=rfc3339(now))

    @property
    def sentence(self) -> str:
        """The message with what to type next, cut to what fits."""
        whole = self.message + (f" | next: {self.next_step}" if self.next_step else "")
        return whole if len(whole) <= LIMIT else whole[: LIMIT - 1] + "…"

    def document(self) -> str:
        """The status annotation: JSON with the conditions that the state means."""
        plain = msgspec.to_builtins(self)
        return msgspec.json.encode(plain | {"conditions": _conditions(self)}).decode()


def _conditions(status: AgentStatus) -> list[dict[str, str]]:
    """Kubernetes' usual three: Ready, Progressing, Degraded."""
    truth = {
        "Ready": status.state == "success",
        "Progressing": status.state in ("pending", "rebooting"),
        "Degraded": status.state == "failed",
    }
    return [
        {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": status.reason,
            "message": status.message if holds else "",
            "lastTransitionTime": status.since,
        }
        for kind, holds in truth.items()
    ]


def parse(text: str | None) -> AgentStatus | None:
    """A status annotation; None if there is none or it is not ours to read."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=AgentStatus)
    except (msgspec.DecodeError, RecursionError):
        return None


def rfc3339(seconds: float) -> str:
    """UTC, to the second, as Kubernetes writes times."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
