"""Tells the owners of pods that wait because of a name that is nearly right: one event on the pod, by the leader.

One watch on the pods that no node has taken. What is kept of such a pod is what it demands, equal for all pods of one
template; pods that demand nothing of NVIDIA's are not kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import EVERYWHERE, Api
from aliquot.kubernetes.client.errors import ApiAwayError, ApiError, ConflictError, NotFoundError, ThrottledError
from aliquot.kubernetes.client.objects import ConfigMap, Event, Node
from aliquot.kubernetes.client.pending_pod import UNBOUND, PendingPod
from aliquot.kubernetes.client.watch import Deleted, Listed, Put, Timing, watch
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.label_agent.controller.hints import Fleet, divisible, fleet, hints
from aliquot.kubernetes.label_agent.controller.pod_demand import Demand, demand

if TYPE_CHECKING:
    from aliquot.metrics.controller_metrics import Tally

COMPONENT, REASON = "aliquot-controller", "NearMiss"
PATIENCE_S = 30.0
"""So long a pod may wait before anything is said, and so far apart are two looks."""
SETTLE_S = 1.0
"""A leader that has only just begun labels nodes first; one that loses its lease again has listed no pods."""
MOST_EVENTS = 3
"""About one pod, as nodes come and change."""
MOST_ASKED = 20
"""Nodes whose documents are read for one look."""
BATCH = 50
"""Events after one look; the others come after the next."""
_LONGEST = 1000
"""Characters of an event's message. Kubernetes takes 1024 in events.k8s.io/v1."""


class Hint(msgspec.Struct, frozen=True):
    """What one pod's owner is to be told."""

    namespace: str
    name: str
    uid: str
    message: str


class Waits(msgspec.Struct, frozen=True):
    """How many pods wait for GPUs, how many of them were told of a near miss, and since when the first has (seconds of
    wall time).
    """

    pods: int
    hinted: int
    since: float


class _Waiter(msgspec.Struct):
    uid: str
    demand: Demand
    since: float
    said: tuple[str, ...] = ()


class Queue:
    """The pods that wait, without any effect. Times are seconds of any clock that only goes forward."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._pods: dict[tuple[str, str], _Waiter] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: PendingPod, now: float) -> None:
        """A pod that came or changed; one with the same name and another uid is another pod."""
        wanted, former = demand(pod), self._pods.get(pod.key)
        if wanted is None:
            self._pods.pop(pod.key, None)
        elif former is not None and former.uid == pod.metadata.uid:
            former.demand = wanted
        else:
            self._pods[pod.key] = _Waiter(pod.metadata.uid, wanted, now)

    def drop(self, pod: PendingPod) -> None:
        self._pods.pop(pod.key, None)

    def waits(self, now: float, wall: float) -> Waits:
        """What is kept, in figures. ``wall`` is the time of day at ``now``."""
        first = min((each.since for each in self._pods.values()), default=now)
        return Waits(len(self._pods), sum(bool(each.said) for each in self._pods.values()), wall - (now - first))

    def impatient(self, now: float) -> bool:
        """Whether some pod has not waited long enough to be looked at, but will have."""
        return any(now - each.since < self._patience_s for each in self._pods.values())

    def divisible(self, there: Fleet, now: float) -> frozenset[str]:
        """The nodes that hints may name to be divided."""
        demands = {each.demand for _, each in self._late(now)}
        return frozenset().union(*(divisible(each, there) for each in demands))

    def _late(self, now: float) -> list[tuple[tuple[str, str], _Waiter]]:
        """The pods that have waited long enough."""
        return [item for item in self._pods.items() if now - item[1].since >= self._patience_s]

    def look(self, there: Fleet, now: float, config_map: str = "") -> list[Hint]:
        """What has not been said yet about pods that have waited long enough."""
        known = dict[Demand, str]()
        found = []
        for (namespace, name), each in self._late(now):
            if each.demand not in known:
                known[each.demand] = "; ".join(hints(each.demand, there, config_map))[:_LONGEST]
            message = known[each.demand]
            if message and message not in each.said and len(each.said) < MOST_EVENTS:
                found.append(Hint(namespace, name, each.uid, message))
        return found

    def said(self, hint: Hint) -> None:
        """It is not said again."""
        each = self._pods.get((hint.namespace, hint.name))
        if each is not None and each.uid == hint.uid:
            each.said += (hint.message,)


class Waiting:
    """``nodes`` are those known now; ``clock`` counts seconds."""

    def __init__(
        self,
        api: Api,
        nodes: Callable[[], Iterable[Node]],
        tally: Tally,
        *,
        patience_s: float = PATIENCE_S,
        timing: Timing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api, self._nodes, self._tally = api, nodes, tally
        self._patience_s, self._timing, self._clock = patience_s, timing, clock
        self._queue = Queue(patience_s)
        self._on, self._config_map = False, ""
        self._turned, self._wake = asyncio.Event(), asyncio.Event()

    def turn(self, on: bool, config_map: str = "") -> None:
        """Only while it is on is anything watched, or said."""
        self._config_map = config_map
        if on != self._on:
            self._on = on
            self._turned.set()

    @property
    def waits(self) -> Waits | None:
        """None while nothing is watched: another replica leads."""
        return self._queue.waits(self._clock(), time.time()) if self._on else None

    def nodes_changed(self) -> None:
        if len(self._queue):
            self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._turned.wait()
            self._turned.clear()
            if not self._on:
                continue
            self._queue = Queue(self._patience_s)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (self._follow(), self._say())]
                await self._turned.wait()
                for task in tasks:
                    task.cancel()

    async def _follow(self) -> None:
        await asyncio.sleep(min(SETTLE_S, self._patience_s))
        changes = watch(
            self.api, PendingPod, namespace=EVERYWHERE, fields=UNBOUND, timing=self._timing, report=self._report
        )
        async for change in changes:
            match change:
                case Listed(items):
                    for item in items:
                        self._queue.put(item, self._clock())
                case Put(item):
                    self._queue.put(item, self._clock())
                case Deleted(item):
                    self._queue.drop(item)
            if len(self._queue):
                self._wake.set()

    async def _say(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._patience_s)
            self._wake.clear()
            now = self._clock()
            found = self._queue.look(await self._fleet(now), now, self._config_map)
            again = len(found) > BATCH or self._queue.impatient(self._clock())
            for hint in found[:BATCH]:
                again |= not await self._tell(hint)
            if again:
                self._wake.set()

    async def _fleet(self, now: float) -> Fleet:
        """The nodes, and which of those that a hint would name are in use. About a few it is asked; others count as in
        use.
        """
        there = fleet(self._nodes())
        asked: set[str] = set()
        while fresh := sorted(self._queue.divisible(there, now) - asked)[: MOST_ASKED - len(asked)]:
            asked.update(fresh)
            held = [name for name in fresh if await self._held(name)]
            there = msgspec.structs.replace(there, held=there.held | set(held))
        unknown = self._queue.divisible(there, now) - asked
        return msgspec.structs.replace(there, held=there.held | unknown) if unknown else there

    async def _held(self, node: str) -> bool:
        """Whether a process is on a node's GPUs, as its agent published it; False where no agent has."""
        try:
            found = await self.api.get(ConfigMap, documents.map_name(node, documents.GPUS))
        except NotFoundError:
            return False
        except ApiError:
            return True
        document = documents.decode(found.data.get(documents.KEY, ""))
        gpus = document.inventory.gpus if document is not None else ()
        return any(gpu.holders or any(i.held for i in gpu.instances) for gpu in gpus)

    async def _tell(self, hint: Hint) -> bool:
        """False where another try may help. The name of the event follows from what it says, so that another leader
        says nothing twice.
        """
        try:
            await self.api.create(Event, event(hint, time.time()), hint.namespace)
        except ConflictError:
            pass
        except (ApiAwayError, ThrottledError) as error:
            log.debug("%s", error.brief)
            return False
        except ApiError as error:
            log.warning("no event on pod %s/%s: %s", hint.namespace, hint.name, error.brief)
            self._tally.failed("event")
        else:
            log.info("pod %s/%s: %s", hint.namespace, hint.name, hint.message)
            self._tally.wrote("event")
        self._queue.said(hint)
        return True

    def _report(self, error: ApiError | None) -> None:
        if error is not None and not isinstance(error, ApiAwayError):
            log.warning("pods that wait are not looked at: %s", error.brief)


def event(hint: Hint, now: float) -> dict[str, Any]:
    """The event, at ``now``, seconds of the epoch."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    digest = hashlib.sha256(f"{hint.uid} {hint.message}".encode()).hexdigest()[:16]
    return {
        "metadata": {"name": f"{hint.name[:200].rstrip('.-')}.{digest}", "namespace": hint.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": hint.namespace,
            "name": hint.name,
            "uid": hint.uid,
        },
        "type": "Warning",
        "reason": REASON,
        "message": hint.message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
