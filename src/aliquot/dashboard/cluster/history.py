"""Past changes: those in the nodes' journals, of which agents publish the newest, and what else agents said about their
nodes in events (refusals, and changes of nodes that publish none). The cluster keeps events for an hour, if nobody says
more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.dashboard.cluster.node_views import unix_seconds
from aliquot.dashboard.local import history as past
from aliquot.dashboard.view_models import PastChange
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.client.objects import Event, Node, ObjectReference
from aliquot.kubernetes.gpu import names

_ENDED = {"Applied": "done", "Healed": "done", "AlreadyApplied": "nothing", "ApplyFailed": "undone"}
_STEPS = ("Changing", "Healing", "WaitingForHolders", "Working", "Rebooting", "NoWish")
_RAN = ("Applied", "Healed", "ApplyFailed")
_LATE_S = 900.0
COMPONENTS = (names.FIELD_MANAGER, "aliquot-devices")


class _Source(ApiStruct, frozen=True):
    component: str = ""


class _AgentEvent(KubeObject, frozen=True):
    """An event with who wrote it."""

    TYPE: ClassVar[ResourceType] = Event.TYPE

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    source: _Source = _Source()


async def changes(
    api: Api, node: str | None, most: int, published: Mapping[str, Sequence[PastRun]] | None = None
) -> tuple[PastChange, ...]:
    """The newest first. ``published`` are changes by node, as their agents tell them. Raises ApiError."""
    fields = {"involvedObject.kind": "Node"} | ({"involvedObject.name": node} if node else {})
    events = await api.list(_AgentEvent, "default", fields=fields)
    requesters = await _requesters(api, node)
    pasts = {name: _without_duplicates(found) for name, found in (published or {}).items() if node in (None, name)}
    ended_events = [e for e in events if e.source.component in COMPONENTS and e.reason not in _STEPS]
    found = [_of_event(e, requesters) for e in ended_events if not _known(e, pasts.get(e.involved_object.name, ()))]
    for name, runs in pasts.items():
        found += [_of_past(name, run, *requesters.get(name, ("", "")), last=n == 0) for n, run in enumerate(runs)]
    # An event's time is in whole seconds: within one it is taken for the later.
    return tuple(sorted(found, key=lambda change: -int(change.ended))[:most])


def _without_duplicates(pasts: Sequence[PastRun]) -> list[PastRun]:
    """Both agents of a node tell of the same journal."""
    return sorted({run.run: run for run in pasts}.values(), key=lambda run: -run.ended)


def _known(event: _AgentEvent, pasts: Sequence[PastRun]) -> bool:
    """Whether it tells the end of a change that the journal tells better: that was a moment before, or some minutes
    where clients of the GPUs had to come back first.
    """
    at, label = unix_seconds(event.last_timestamp), _label(event)
    return event.reason in _RAN and any(label in ("", p.name) and -5 <= at - p.ended <= _LATE_S for p in pasts)


def _label(event: _AgentEvent) -> str:
    """The named config that it is about, "" for none."""
    config = re.match(r"'([^']*)'", event.message)
    return config.group(1) if config else ""


def _of_past(node: str, run: PastRun, by: str, wanted: str, *, last: bool) -> PastChange:
    found = past.change(node, run)
    return msgspec.structs.replace(found, by=f"web: {by}") if by and last and run.name == wanted else found


def _of_event(event: _AgentEvent, requesters: dict[str, tuple[str, str]]) -> PastChange:
    name = event.involved_object.name
    at = unix_seconds(event.last_timestamp)
    outcome = _ENDED.get(event.reason, "refused" if event.type == "Warning" else "done")
    if event.reason == "ApplyFailed" and "the former state is back" not in event.message:
        outcome = "partial"
    label = _label(event)
    by, wanted = requesters.get(name, ("", ""))
    sentence = event.message.partition(" | next: ")[0]
    took = re.search(r" in (\d+\.\d) s, verified", sentence)
    return PastChange(
        node=name,
        at=at - float(took.group(1)) if took else at,
        ended=at,
        by=f"web: {by}" if by and label and wanted == label else "",
        title=f"named config {label}" if label else event.reason,
        outcome=outcome,
        sentence=sentence,
    )


class _By(msgspec.Struct, frozen=True):
    by: str = ""
    config: str = ""


async def _requesters(api: Api, node: str | None) -> dict[str, tuple[str, str]]:
    """Who asked last by this page, and for what, by node."""
    found = {}
    for each in await api.list(Node, fields={"metadata.name": node} if node else None):
        text = each.metadata.annotations.get("aliquot.dev/asked-by", "")
        try:
            requester = msgspec.json.decode(text, type=_By) if text else _By()
        except (msgspec.DecodeError, UnicodeError):
            continue
        if requester.by:
            found[each.name] = (requester.by, requester.config)
    return found
