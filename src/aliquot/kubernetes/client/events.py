"""Kubernetes events about objects, as ``kubectl describe`` shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

MESSAGE_LIMIT = 1024
"""Characters of an event's message."""

EventType = Literal["Normal", "Warning"]


def rfc3339(seconds: float) -> str:
    """Return wall time in UTC, to the second, as Kubernetes writes it: ``2024-02-21T05:57:37Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def truncate_message(text: str) -> str:
    """Truncate a message to the limit of an event."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


class EventSubject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""
    """Empty for a cluster-scoped object."""


class EventSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The program that writes an event."""

    component: str
    host: str = ""
    """Node that the program runs on; empty if none."""


class EventText(msgspec.Struct, frozen=True):
    """The contents of an event."""

    type: EventType
    reason: str
    """CamelCase word for programs."""
    message: str
    """Sentence for people."""
    annotations: dict[str, str] = {}
    """More data for programs."""


def node_subject(name: str) -> EventSubject:
    """Return a node as the subject of an event, with its name as the uid like kubelet: kubectl searches by that."""
    return EventSubject("v1", "Node", name, name)


def event_body(
    subject: EventSubject, source: EventSource, text: EventText, now: float, name: str = ""
) -> dict[str, Any]:
    """Build an event at ``now`` (seconds since the epoch). If ``name`` is empty, the API server generates one.

    Events about cluster-scoped objects go to the namespace ``default``.
    """
    stamp = rfc3339(now)
    annotations = {"annotations": text.annotations} if text.annotations else {}
    naming = {"name": name} if name else {"generateName": f"{subject.name}."}
    return {
        "metadata": naming | {"namespace": subject.namespace or "default"} | annotations,
        "involvedObject": msgspec.to_builtins(subject),
        "type": text.type,
        "reason": text.reason,
        "message": truncate_message(text.message),
        "source": msgspec.to_builtins(source),
        "reportingComponent": source.component,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
