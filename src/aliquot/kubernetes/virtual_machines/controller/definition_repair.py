"""The repair of the CustomResourceDefinitions of Harvester's kinds, after another program wrote its own over ours.

Each start of pcidevices on any node does that, and conditions vanish. The leader then adds what is missing again, by
server-side apply, and removes nothing. If the definition is soon overwritten again, each repair waits longer, so that
two programs do not write over each other without end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from aliquot.errors import Message
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.events import EventSubject, EventText
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup
from aliquot.kubernetes.client.object_base import KubeObject, ResourceType
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.client.work_loop import WorkLoop
from aliquot.kubernetes.node_agent.event_writer import EventWriter
from aliquot.kubernetes.virtual_machines.harvester.crd_manifests import definitions
from aliquot.kubernetes.virtual_machines.harvester.crd_merge import missing_parts, unite
from aliquot.metrics.controller_metrics import ControllerMetrics

JSON = dict[str, Any]
COMPONENT = "aliquot-controller"
REPAIRED: Final = "DefinitionRepaired"
OVERWRITTEN: Final = "DefinitionOverwritten"
BY_HAND = "kubectl apply --server-side --force-conflicts -f deploy/crds/"
GATHER_S = 0.2
RETRY = Backoff(first=1.0, longest=300.0)
"""The back-off after a failed write."""


class RepairTiming(msgspec.Struct, frozen=True):
    """The timing of the repair."""

    watch: WatchTiming = KIND_TIMING
    calm_s: float = 600.0
    """A definition that is overwritten within so many seconds after its repair is repaired later the next time."""
    pause: Backoff = Backoff(first=60.0, longest=3600.0)
    """How long a repair then waits, by the number of such repairs in a row."""
    rights_s: float = 300.0
    """How often the right to repair is asked for while it is missing, in seconds."""


class CustomResourceDefinition(KubeObject, frozen=True):
    """A definition, with its spec as it is."""

    TYPE: ClassVar[ResourceType] = ResourceType(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
    )

    spec: JSON = msgspec.field(default_factory=dict)


class RepairPace:
    """When each definition may be repaired. ``clock`` counts seconds."""

    def __init__(self, timing: RepairTiming, clock: Callable[[], float] = time.monotonic) -> None:
        self._timing, self._clock = timing, clock
        self._repaired_at: dict[str, float] = {}
        self._due_at: dict[str, float] = {}
        self._in_a_row: dict[str, int] = {}

    def notice(self, name: str) -> bool:
        """Record that a definition lacks something. Return whether it was overwritten soon after its repair, and this
        is not known yet.
        """
        if name in self._due_at:
            return False
        now, repaired_at = self._clock(), self._repaired_at.get(name)
        soon = repaired_at is not None and now - repaired_at < self._timing.calm_s
        self._in_a_row[name] = self._in_a_row.get(name, 0) + 1 if soon else 0
        self._due_at[name] = now + self._timing.pause.pause(self._in_a_row[name])
        return soon

    def due_in(self, name: str) -> float:
        """Return the seconds until a noticed definition may be repaired; 0 if it may be now."""
        return max(0.0, self._due_at[name] - self._clock())

    def forget(self, name: str) -> None:
        """Record that a definition is complete."""
        self._due_at.pop(name, None)

    def record_repair(self, name: str) -> None:
        self._repaired_at[name] = self._clock()
        self.forget(name)


class DefinitionRepair:
    """The repair. It writes only while ``leads`` returns True, and only with the right to patch the definitions."""

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        metrics: ControllerMetrics,
        *,
        timing: RepairTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._leads, self._metrics = api, leads, metrics
        self._timing = timing or RepairTiming()
        self._ours: dict[str, JSON] = {each["metadata"]["name"]: each for each in definitions()}
        self._informers = {name: self._informer(name) for name in self._ours}
        self._pace = RepairPace(self._timing, clock)
        self._events = EventWriter(api, COMPONENT, "")
        self._rounds = WorkLoop(GATHER_S, RETRY)
        self._warnings = NewWarnings(log)

    def _informer(self, name: str) -> Informer[CustomResourceDefinition]:
        return Informer(CustomResourceDefinition, lambda _: self.wake(), name=name, timing=self._timing.watch)

    def wake(self) -> None:
        """Start a round: a definition or the leadership changed."""
        self._rounds.wake()

    async def run(self) -> None:
        """Run until cancelled. Without the right, only ask for it now and then."""
        while not await self._is_allowed():
            await asyncio.sleep(self._timing.rights_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(InformerGroup(*self._informers.values()).follow(self._api))
            group.create_task(self._rounds.run(self._work))

    async def _is_allowed(self) -> bool:
        kind = str(CustomResourceDefinition.TYPE)
        try:
            return all([await self._api.can_i("patch", kind, name=name) for name in self._ours])
        except ApiError as error:
            self._warnings.update((error.brief,))
            return False

    async def _work(self) -> bool | None:
        if not self._leads():
            return None
        done, warnings = True, []
        for name, ours in self._ours.items():
            live = self._informers[name].get(name)
            missing = missing_parts(_plain(live), ours) if live is not None else ()
            if live is None or not missing:
                self._pace.forget(name)
                continue
            if self._pace.notice(name):
                await self._report_overwrite(live, missing)
            if (due_s := self._pace.due_in(name)) > 0:
                self._rounds.wake_in(due_s)
            elif failure := await self._repair(live, missing):
                done = False
                warnings += [failure]
        self._warnings.update(tuple(filter(str.strip, warnings)))
        return done

    async def _repair(self, live: CustomResourceDefinition, missing: tuple[str, ...]) -> str:
        """Apply what is missing. Return why it has to be tried again; "" if it is done, " " if only the read is old."""
        try:
            body = unite(_plain(live), self._ours[live.name])
            written = await self._api.patch(CustomResourceDefinition, live.name, body, style="apply")
        except (ConflictError, NotFoundError):
            return " "  # it changed or went since it was read: the watch brings the change
        except ApiError as error:
            self._metrics.count_failure("definition")
            what = "may not repair" if isinstance(error, ForbiddenError) else "cannot repair"
            return str(Message(f"the controller {what} definition {live.name}: {error.brief}", BY_HAND))
        self._informers[live.name].record_write(live, written)
        self._pace.record_repair(live.name)
        self._metrics.count_write("definition")
        text = f"definition {live.name} lacked {_list(missing)}: added again, and nothing was removed"
        log.info("%s", text)
        await self._events.write(EventText("Normal", REPAIRED, text), _subject(live))
        return ""

    async def _report_overwrite(self, live: CustomResourceDefinition, missing: tuple[str, ...]) -> None:
        self._metrics.count_overwrite(live.spec["names"]["kind"])
        text = (
            f"another program wrote definition {live.name} again without {_list(missing)}, soon after its repair: it "
            f"is repaired again in {self._pace.due_in(live.name):.0f} s"
        )
        message = str(Message(text, "let pcidevices leave the nodes: docs/coming-from/pcidevices.md, step 3"))
        log.warning("%s", message)
        await self._events.write(EventText("Warning", OVERWRITTEN, message), _subject(live))


def _plain(live: CustomResourceDefinition) -> JSON:
    meta = live.metadata
    return {
        "metadata": {"name": live.name, "resourceVersion": meta.resource_version, "uid": meta.uid},
        "spec": live.spec,
    }


def _subject(live: CustomResourceDefinition) -> EventSubject:
    kind = live.TYPE
    return EventSubject(kind.api_version, kind.kind, live.name, live.metadata.uid)


def _list(missing: tuple[str, ...]) -> str:
    """Name the first parts: an event has little room."""
    more = len(missing) - 4
    return ", ".join(missing[:4]) + (f" and {more} more" if more > 0 else "")
