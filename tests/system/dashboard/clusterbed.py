"""A cluster source on its own event loop, for synchronous tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.cluster.connect import ClusterAuthenticator, open_cluster
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.source import ClusterSource as ClusterSource
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, ObservedNode, Person
from support.cluster import Cluster
from support.processes import until

T = TypeVar("T")
PATIENCE_S = 60.0
ADMIN = Person("admin")
NS = "gpu-operator"


class Bed:
    """A cluster source on the event loop of a thread. ``do`` runs a coroutine there."""

    def __init__(self, kubeconfig: str, *, own: bool, patience: OutcomeTimeouts | None, kubevirt: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def opened() -> tuple[ClusterSource, ClusterAuthenticator]:
            return open_cluster(
                kubeconfig, namespace=NS, own_credentials=own, timeouts=patience, kubevirt_namespace=kubevirt
            )

        self.source, self.user = self.do(opened())
        self._task = asyncio.run_coroutine_threadsafe(self.source.run(), self._loop)
        self.reported: list[str] = []

    def do(self, work: Coroutine[Any, Any, T], seconds: float = PATIENCE_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def until(self, true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
        def holds() -> object:
            assert not self._task.done(), f"the source ended: {self._task.exception()}"
            return true()

        until(holds, lambda: f"{what}\n{self.source.fleet}", seconds, pause_s=0.02)

    def make_observation(self, node: str) -> ObservedNode:
        return self.source.fleet.by_name.get(node, ObservedNode(node))

    def preview(self, ask: AnyChangeRequest, who: Person = ADMIN) -> ChangePreview:
        return self.do(self.source.preview(ask, who))

    def execute(self, preview: ChangePreview, who: Person = ADMIN) -> ChangeOutcome:
        return self.do(self.source.execute(preview, who, self.reported.append))

    def ask(self, ask: AnyChangeRequest, who: Person = ADMIN) -> ChangeOutcome:
        """Preview and execute a request."""
        preview = self.preview(ask, who)
        assert not preview.obstacles, preview.obstacles
        return self.execute(preview, who)

    def geometry(self, node: str) -> list[list[str]]:
        found = self.make_observation(node).inventory
        gpus = found.gpus if found is not None else ()
        return [sorted(f"{i.profile}@{i.place.start}" for i in gpu.instances) for gpu in gpus]

    async def _closed(self) -> None:
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.source.aclose()

    def close(self) -> None:
        self._task.cancel()
        try:
            self.do(self._closed())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()


@contextmanager
def bed(
    cluster: Cluster,
    *,
    account: str | None = None,
    patience: OutcomeTimeouts | None = None,
    kubevirt: str = "harvester-system",
) -> Iterator[Bed]:
    """Open a source with the administrator's kubeconfig, or as the dashboard in the cluster with ``account``."""
    config = cluster.kubeconfig(NS, account)
    made = Bed(str(config), own=account is None, patience=patience, kubevirt=kubevirt)
    try:
        yield made
    finally:
        made.close()
