"""Past changes: the newest entries of nodes' journals, which agents publish, and events of agents.

Events add refusals, and the changes of nodes whose agents publish no journal.
By default, a cluster keeps events for one hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec

from aliquot.core.engine.history import EndStatus, PastRun
from aliquot.core.model.stored import Stored
from aliquot.dashboard.cluster.node_views import unix_seconds
from aliquot.dashboard.local import history as past
from aliquot.dashboard.view_models import PastChange
from aliquot.errors import Message
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.events import EventType
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.client.objects import Event, Node, ObjectReference
from aliquot.kubernetes.gpu import change_report, names
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.reasons import ALREADY_APPLIED, APPLY_FAILED, NO_REQUEST, StatusReason
from aliquot.kubernetes.virtual_machines.harvester.reasons import DevicesReason

_EventReason = StatusReason | DevicesReason
_ENDED: dict[_EventReason, EndStatus] = {
    "Applied": "done",
    "Healed": "done",
    ALREADY_APPLIED: "nothing",
}
_STEPS: tuple[_EventReason, ...] = ("Changing", "Healing", "WaitingForHolders", "Working", "Rebooting", NO_REQUEST)
_RAN: tuple[_EventReason, ...] = ("Applied", "Healed", APPLY_FAILED)
_LATE_S = 900.0
COMPONENTS = (names.FIELD_MANAGER, "aliquot-devices")


class _Source(ApiStruct, frozen=True):
    component: str = ""


class _AgentEvent(KubeObject, frozen=True):
    """An event with its source component."""

    TYPE: ClassVar[ResourceType] = Event.TYPE

    involved_object: ObjectReference = ObjectReference()
    type: Stored[EventType | Literal[""]] = ""
    reason: Stored[_EventReason] = ""
    message: str = ""
    last_timestamp: str | None = None
    source: _Source = _Source()

    @property
    def change(self) -> ChangeReport:
        return change_report.read(self.metadata.annotations)


async def changes(
    api: Api, node: str | None, most: int, published: Mapping[str, Sequence[PastRun]] | None = None
) -> tuple[PastChange, ...]:
    """List past changes, the newest first. ``published`` are changes by node, from agents. Raises ApiError."""
    fields = {"involvedObject.kind": "Node"} | ({"involvedObject.name": node} if node else {})
    events = await api.list(_AgentEvent, "default", fields=fields)
    requesters = await _requesters(api, node)
    pasts = {name: _without_duplicates(found) for name, found in (published or {}).items() if node in (None, name)}
    ended_events = [e for e in events if e.source.component in COMPONENTS and e.reason not in _STEPS]
    found = [_of_event(e, requesters) for e in ended_events if not _known(e, pasts.get(e.involved_object.name, ()))]
    for name, runs in pasts.items():
        found += [_of_past(name, run, *requesters.get(name, ("", "")), last=n == 0) for n, run in enumerate(runs)]
    # Event times have whole seconds: within the same second, an event counts as later.
    return tuple(sorted(found, key=lambda change: -int(change.ended))[:most])


def _without_duplicates(pasts: Sequence[PastRun]) -> list[PastRun]:
    """Remove duplicates: both agents of a node publish the same journal."""
    return sorted({run.run: run for run in pasts}.values(), key=lambda run: -run.ended)


def _known(event: _AgentEvent, pasts: Sequence[PastRun]) -> bool:
    """Report whether an event reports the end of a change that is also in the journal.

    The journal entry is slightly older, or some minutes older if clients of the GPUs had to restart first.
    """
    at, config = unix_seconds(event.last_timestamp), event.change.config
    return event.reason in _RAN and any(config in ("", p.name) and -5 <= at - p.ended <= _LATE_S for p in pasts)


def _of_past(node: str, run: PastRun, by: str, wanted: str, *, last: bool) -> PastChange:
    found = past.change(node, run)
    return msgspec.structs.replace(found, by=f"web: {by}") if by and last and run.name == wanted else found


def _of_event(event: _AgentEvent, requesters: dict[str, tuple[str, str]]) -> PastChange:
    name = event.involved_object.name
    at = unix_seconds(event.last_timestamp)
    change = event.change
    outcome: EndStatus = change.outcome or _ENDED.get(event.reason, "refused" if event.type == "Warning" else "done")
    by, wanted = requesters.get(name, ("", ""))
    return PastChange(
        node=name,
        at=at - change.seconds,
        ended=at,
        by=f"web: {by}" if by and change.config and wanted == change.config else "",
        title=f"named config {change.config}" if change.config else event.reason,
        outcome=outcome,
        sentence=Message.parse(event.message).sentence,
    )


class _By(msgspec.Struct, frozen=True):
    by: str = ""
    config: str = ""


async def _requesters(api: Api, node: str | None) -> dict[str, tuple[str, str]]:
    """Return the last user of the dashboard and the requested config, by node."""
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
