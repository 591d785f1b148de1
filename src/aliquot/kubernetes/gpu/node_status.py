"""Status of a node: the state label that NVIDIA's mig-manager also writes, and the details behind it."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.errors import Message
from aliquot.kubernetes.client.events import MESSAGE_LIMIT, rfc3339
from aliquot.kubernetes.gpu import change_report
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.names import LabelState
from aliquot.kubernetes.gpu.reasons import StatusReason


class AgentStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The status of a node."""

    state: Stored[LabelState | Literal[""]]
    """pending, rebooting, success or failed; empty if no config is requested."""
    reason: Stored[StatusReason]
    """CamelCase word for programs (``Applied``, ``Held``, ``UnknownConfig``)."""
    message: str
    """Sentence for people."""
    config: str = ""
    source: str = ""
    next_step: str = ""
    """The next command to run."""
    digest: str = ""
    """Hash that changes when the config is edited."""
    progress: str = ""
    """``done/all`` actions."""
    since: str = ""
    """When state, reason or config last changed (RFC 3339)."""
    details: tuple[str, ...] = ()
    change: ChangeReport | None = None
    """Outcome of the change that this status is about."""

    def same_as(self, other: AgentStatus | None) -> bool:
        """Report whether the other status is equal apart from its time."""
        return other is not None and msgspec.structs.replace(self, since=other.since) == other

    def differs_from(self, other: AgentStatus | None) -> bool:
        """Report whether state, reason or config differ."""
        return other is None or (self.state, self.reason, self.config) != (other.state, other.reason, other.config)

    def with_since(self, now: float, previous: AgentStatus | None) -> AgentStatus:
        """Return the status with a time; ``since`` stays if state, reason and config are unchanged."""
        if previous is not None and previous.since and not self.differs_from(previous):
            return msgspec.structs.replace(self, since=previous.since)
        return msgspec.structs.replace(self, since=rfc3339(now))

    @property
    def rollback(self) -> Literal["", change_report.Rollback]:
        """``undone`` or ``partial`` after a failed apply; else empty."""
        return self.change.outcome if self.change else ""

    @property
    def sentence(self) -> str:
        """The message with the next command, truncated to the limit of an event."""
        return str(Message(self.message, self.next_step).cut(MESSAGE_LIMIT))

    def document(self) -> str:
        """Encode the status annotation: JSON that includes the conditions derived from the state."""
        plain = msgspec.to_builtins(self)
        return msgspec.json.encode(plain | {"conditions": _conditions(self)}).decode()


def _conditions(status: AgentStatus) -> list[dict[str, str]]:
    """Return the usual conditions of Kubernetes: Ready, Progressing and Degraded."""
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
    """Parse a status annotation; None if it is absent or invalid."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=AgentStatus)
    except (msgspec.DecodeError, RecursionError):
        return None
