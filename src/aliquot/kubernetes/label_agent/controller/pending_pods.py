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
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError, ThrottledError
from aliquot.kubernetes.client.informer import Informer, Key
from aliquot.kubernetes.client.objects import ConfigMap, Event, Node
from aliquot.kubernetes.client.pending_pod import UNSCHEDULED, PendingPod
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.label_agent.controller.hints import NodeFleet, build_fleet, hints, partitionable_nodes
from aliquot.kubernetes.label_agent.controller.pod_demand import PodDemand, demand

if TYPE_CHECKING:
    from aliquot.metrics.controller_metrics import ControllerMetrics

COMPONENT, REASON = "aliquot-controller", "NearMiss"
PATIENCE_S = 30.0
"""So long a pod may wait before anything is said, and so far apart are two looks."""
SETTLE_S = 1.0
"""A leader that has only just begun labels nodes first; one that loses its lease again has listed no pods."""
MAX_EVENTS = 3
"""About one pod, as nodes come and change."""
MAX_DOCUMENTS = 20
"""Nodes whose documents are read for one look."""
BATCH = 50
"""Events after one look; the others come after the next."""
_LONGEST = 1000
"""Characters of an event's message. Kubernetes takes 1024 in events.k8s.io/v1."""


class PodHint(msgspec.Struct, frozen=True):
    """What one pod's owner is to be told."""

    namespace: str
    name: str
    uid: str
    message: str


class PendingPodCounts(msgspec.Struct, frozen=True):
    """How many pods wait for GPUs, how many of them were told of a near miss, and since when the first has (seconds of
    wall time).
    """

    pods: int
    hinted: int
    since: float


class _WaitingPod(msgspec.Struct):
    uid: str
    demand: PodDemand
    since: float
    sent: tuple[str, ...] = ()


class PendingPodQueue:
    """The pods that wait, without any effect. Times are seconds of any clock that only goes forward."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._pods: dict[Key, _WaitingPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: PendingPod, now: float) -> None:
        """A pod that came or changed; one with the same name and another uid is another pod."""
        wanted, previous = demand(pod), self._pods.get(pod.key)
        if wanted is None:
            self._pods.pop(pod.key, None)
        elif previous is not None and previous.uid == pod.metadata.uid:
            previous.demand = wanted
        else:
            self._pods[pod.key] = _WaitingPod(pod.metadata.uid, wanted, now)

    def drop(self, key: Key) -> None:
        self._pods.pop(key, None)

    def counts(self, now: float, wall: float) -> PendingPodCounts:
        """What is kept, in figures. ``wall`` is the time of day at ``now``."""
        first = min((each.since for each in self._pods.values()), default=now)
        return PendingPodCounts(
            len(self._pods), sum(bool(each.sent) for each in self._pods.values()), wall - (now - first)
        )

    def has_recent_pods(self, now: float) -> bool:
        """Whether some pod has not waited long enough to be looked at, but will have."""
        return any(now - each.since < self._patience_s for each in self._pods.values())

    def partitionable_nodes(self, fleet: NodeFleet, now: float) -> frozenset[str]:
        """The nodes that hints may name to be divided."""
        demands = {each.demand for _, each in self._overdue(now)}
        return frozenset().union(*(partitionable_nodes(each, fleet) for each in demands))

    def _overdue(self, now: float) -> list[tuple[Key, _WaitingPod]]:
        """The pods that have waited long enough."""
        return [item for item in self._pods.items() if now - item[1].since >= self._patience_s]

    def new_hints(self, fleet: NodeFleet, now: float, config_map: str = "") -> list[PodHint]:
        """What has not been said yet about pods that have waited long enough."""
        known = dict[PodDemand, str]()
        found = []
        for (namespace, name), each in self._overdue(now):
            if each.demand not in known:
                known[each.demand] = "; ".join(hints(each.demand, fleet, config_map))[:_LONGEST]
            message = known[each.demand]
            if message and message not in each.sent and len(each.sent) < MAX_EVENTS:
                found.append(PodHint(namespace, name, each.uid, message))
        return found

    def record_sent(self, hint: PodHint) -> None:
        """It is not said again."""
        each = self._pods.get((hint.namespace, hint.name))
        if each is not None and each.uid == hint.uid:
            each.sent += (hint.message,)


class PendingPodWatcher:
    """``nodes`` are those known now; ``clock`` counts seconds."""

    def __init__(
        self,
        api: Api,
        nodes: Callable[[], Iterable[Node]],
        metrics: ControllerMetrics,
        *,
        patience_s: float = PATIENCE_S,
        timing: WatchTiming,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api, self._nodes, self._metrics = api, nodes, metrics
        self._patience_s, self._timing, self._clock = patience_s, timing, clock
        self._queue = PendingPodQueue(patience_s)
        self._active, self._config_map = False, ""
        self._switched, self._wake = asyncio.Event(), asyncio.Event()

    def set_active(self, active: bool, config_map: str = "") -> None:
        """Only while it is on is anything watched, or said."""
        self._config_map = config_map
        if active != self._active:
            self._active = active
            self._switched.set()

    @property
    def counts(self) -> PendingPodCounts | None:
        """None while nothing is watched: another replica leads."""
        return self._queue.counts(self._clock(), time.time()) if self._active else None

    def nodes_changed(self) -> None:
        if len(self._queue):
            self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._switched.wait()
            self._switched.clear()
            if not self._active:
                continue
            self._queue = PendingPodQueue(self._patience_s)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in (self._follow(), self._send_hints())]
                await self._switched.wait()
                for task in tasks:
                    task.cancel()

    async def _follow(self) -> None:
        await asyncio.sleep(min(SETTLE_S, self._patience_s))
        pods = Informer(
            PendingPod,
            lambda keys: self._pods_changed(pods, keys),
            namespace=ALL_NAMESPACES,
            fields=UNSCHEDULED,
            is_own=lambda pod: demand(pod) is not None,
            timing=self._timing,
            report=self._report,
        )
        await pods.follow(self.api)

    def _pods_changed(self, pods: Informer[PendingPod], keys: set[Key]) -> None:
        for namespace, name in keys:
            pod = pods.get(name, namespace)
            if pod is not None:
                self._queue.put(pod, self._clock())
            else:
                self._queue.drop((namespace, name))
        if len(self._queue):
            self._wake.set()

    async def _send_hints(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._patience_s)
            self._wake.clear()
            now = self._clock()
            found = self._queue.new_hints(await self._fleet(now), now, self._config_map)
            again = len(found) > BATCH or self._queue.has_recent_pods(self._clock())
            for hint in found[:BATCH]:
                again |= not await self._send_hint(hint)
            if again:
                self._wake.set()

    async def _fleet(self, now: float) -> NodeFleet:
        """The nodes, and which of those that a hint would name are in use. About a few it is asked; others count as in
        use.
        """
        fleet = build_fleet(self._nodes())
        queried: set[str] = set()
        while fresh := sorted(self._queue.partitionable_nodes(fleet, now) - queried)[: MAX_DOCUMENTS - len(queried)]:
            queried.update(fresh)
            held = [name for name in fresh if await self._held(name)]
            fleet = msgspec.structs.replace(fleet, held=fleet.held | set(held))
        unknown = self._queue.partitionable_nodes(fleet, now) - queried
        return msgspec.structs.replace(fleet, held=fleet.held | unknown) if unknown else fleet

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

    async def _send_hint(self, hint: PodHint) -> bool:
        """False where another try may help. The name of the event follows from what it says, so that another leader
        says nothing twice.
        """
        try:
            await self.api.create(Event, event(hint, time.time()), hint.namespace)
        except ConflictError:
            pass
        except (ApiUnavailableError, ThrottledError) as error:
            log.debug("%s", error.brief)
            return False
        except ApiError as error:
            log.warning("no event on pod %s/%s: %s", hint.namespace, hint.name, error.brief)
            self._metrics.count_failure("event")
        else:
            log.info("pod %s/%s: %s", hint.namespace, hint.name, hint.message)
            self._metrics.count_write("event")
        self._queue.record_sent(hint)
        return True

    def _report(self, error: ApiError | None) -> None:
        if error is not None and not isinstance(error, ApiUnavailableError):
            log.warning("pods that wait are not looked at: %s", error.brief)


def event(hint: PodHint, now: float) -> dict[str, Any]:
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
