"""Events on pods that stay pending because of a misspelled name, written by the leader.

It watches unscheduled pods. It keeps only the demand of such a pod, which is equal for all pods of one template, and
ignores pods without a demand for NVIDIA resources or labels.
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
from aliquot.kubernetes.client.events import EventSource, EventSubject, EventText, event_body
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
"""Seconds that a pod may be pending before it gets a hint, and seconds between two checks."""
SETTLE_S = 1.0
"""Seconds before a new leader lists pods: it labels nodes first, and may lose its lease again."""
MAX_EVENTS = 3
"""Maximum number of events for a pod, as nodes come and change."""
MAX_DOCUMENTS = 20
"""Maximum number of node documents that are read for a check."""
BATCH = 50
"""Maximum number of events after a check; the others follow after the next."""
_LONGEST = 1000
"""Maximum length of an event's message. Kubernetes allows 1024 characters in events.k8s.io/v1."""


class PodHint(msgspec.Struct, frozen=True):
    """A hint for a pod."""

    namespace: str
    name: str
    uid: str
    message: str


class PendingPodCounts(msgspec.Struct, frozen=True):
    """Counts of pending pods."""

    pods: int
    """Number of pods that wait for GPUs."""
    hinted: int
    """Number of those that got a hint."""
    since: float
    """Since when the first one waits, in seconds of wall time."""


class _WaitingPod(msgspec.Struct):
    uid: str
    demand: PodDemand
    since: float
    sent: tuple[str, ...] = ()


class PendingPodQueue:
    """Queue of pending pods, without I/O. Times are seconds of any monotonic clock."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._pods: dict[Key, _WaitingPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def put(self, pod: PendingPod, now: float) -> None:
        """Add or update a pod. A pod with the same name and another uid is another pod."""
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
        """Count the pods. ``wall`` is the wall time at ``now``."""
        first = min((each.since for each in self._pods.values()), default=now)
        return PendingPodCounts(
            len(self._pods), sum(bool(each.sent) for each in self._pods.values()), wall - (now - first)
        )

    def has_recent_pods(self, now: float) -> bool:
        """Report whether some pod has not waited long enough for a check yet."""
        return any(now - each.since < self._patience_s for each in self._pods.values())

    def partitionable_nodes(self, fleet: NodeFleet, now: float) -> frozenset[str]:
        """Return the nodes that hints may suggest to partition."""
        demands = {each.demand for _, each in self._overdue(now)}
        return frozenset().union(*(partitionable_nodes(each, fleet) for each in demands))

    def _overdue(self, now: float) -> list[tuple[Key, _WaitingPod]]:
        """Return the pods that have waited long enough."""
        return [item for item in self._pods.items() if now - item[1].since >= self._patience_s]

    def new_hints(self, fleet: NodeFleet, now: float, config_map: str = "") -> list[PodHint]:
        """Return the hints that were not sent yet, for pods that have waited long enough."""
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
        """Record a hint, so that it is not sent again."""
        each = self._pods.get((hint.namespace, hint.name))
        if each is not None and each.uid == hint.uid:
            each.sent += (hint.message,)


class PendingPodWatcher:
    """Watcher of pending pods. ``nodes`` returns the known nodes; ``clock`` returns seconds."""

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
        """Start or stop watching pods and sending hints."""
        self._config_map = config_map
        if active != self._active:
            self._active = active
            self._switched.set()

    @property
    def counts(self) -> PendingPodCounts | None:
        """Counts of pending pods; None if another replica leads."""
        return self._queue.counts(self._clock(), time.time()) if self._active else None

    def nodes_changed(self) -> None:
        if len(self._queue):
            self._wake.set()

    async def run(self) -> None:
        """Run forever."""
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
        """Return the nodes, with the nodes in hints that have holders.

        Reads the documents of at most ``MAX_DOCUMENTS`` nodes; the others count as held.
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
        """Report whether a node's GPUs have holders according to its document; False without a document."""
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
        """Write the event of a hint. Returns False if a retry may help.

        The name of the event is derived from its text, so that another leader does not send it twice.
        """
        try:
            await self.api.create(Event, event(hint, time.time()), hint.namespace)
        except ConflictError:
            pass
        except (ApiUnavailableError, ThrottledError) as error:
            log.debug("%s", error.brief)
            return False
        except ApiError as error:
            log.warning("cannot write an event on pod %s/%s: %s", hint.namespace, hint.name, error.brief)
            self._metrics.count_failure("event")
        else:
            log.info("pod %s/%s: %s", hint.namespace, hint.name, hint.message)
            self._metrics.count_write("event")
        self._queue.record_sent(hint)
        return True

    def _report(self, error: ApiError | None) -> None:
        if error is not None and not isinstance(error, ApiUnavailableError):
            log.warning("cannot watch pending pods: %s", error.brief)


def event(hint: PodHint, now: float) -> dict[str, Any]:
    """Build the event at ``now`` (seconds since the epoch)."""
    digest = hashlib.sha256(f"{hint.uid} {hint.message}".encode()).hexdigest()[:16]
    return event_body(
        EventSubject("v1", "Pod", hint.name, hint.uid, hint.namespace),
        EventSource(COMPONENT),
        EventText("Warning", REASON, hint.message),
        now,
        name=f"{hint.name[:200].rstrip('.-')}.{digest}",
    )
