"""The controller of pools: it watches VGPUPools and writes what ``pool_decision`` decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.harvester import MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.pools.agent_watch import AgentWatch
from aliquot.kubernetes.virtual_machines.pools.pool_decision import decide_pools
from aliquot.kubernetes.virtual_machines.pools.pool_plan import PoolChange
from aliquot.metrics.controller_metrics import ControllerMetrics

RECHECK_S: Final = 60.0


class PoolController:
    """The controller of pools. ``wake`` is called when another round is due. ``clock`` is wall time in seconds.

    While a pool is not ready, a round is due every ``recheck_s`` seconds.
    """

    def __init__(
        self,
        api: Api,
        informers: VmClusterInformers,
        metrics: ControllerMetrics,
        wake: Callable[[], None],
        *,
        timing: WatchTiming = KIND_TIMING,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self.api, self._informers, self._metrics, self._clock = api, informers, metrics, clock
        self._wake, self._recheck_s = wake, recheck_s
        self._agents, self._monotonic = AgentWatch(), monotonic
        self._timer: asyncio.TimerHandle | None = None
        self.pools = Informer(VGPUPool, lambda _: wake(), timing=timing)
        self.follow = self.pools.follow

    async def run(self, leads: Callable[[], bool]) -> bool:
        """Write what the pools need now. Return False if something has to be tried again."""
        if not self.pools.synced or not self.pools.items or self._informers.awaits_claims:
            return True  # an installation may lack the kind
        changes = self._decide(self._informers.snapshot())
        if any(change.withdraws for change in changes):
            try:  # a VM may have started that the watches do not show yet
                changes = self._decide(await self._informers.fresh_snapshot(self.api))
            except ApiError as error:
                return self._count_failure(error)
        done = True
        for change in changes:
            if leads():
                done &= await self._write(change)
        if any(not _is_ready(pool) for pool in self.pools.items):
            self._recheck()
        return done

    def _decide(self, snapshot: AdmissionSnapshot) -> tuple[PoolChange, ...]:
        silent = self._agents.silent_nodes(snapshot, self._monotonic())
        return decide_pools(self.pools.items, snapshot, self._clock(), silent)

    def _recheck(self) -> None:
        """Start another round later: no event tells that a pool has waited long enough for a GPU."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._recheck_s, self._recheck_now)

    def _recheck_now(self) -> None:
        self._timer = None
        self._wake()

    async def _write(self, change: PoolChange) -> bool:
        subresource = "status" if change.status else None
        try:
            written = await self.api.patch(change.kind, change.name, change.body, subresource=subresource)
        except NotFoundError:
            return True
        except ConflictError:
            return False  # it changed meanwhile: the next round reads the change
        except ApiError as error:
            return self._count_failure(error)
        if not change.status:
            log.info("%s %s: %s", change.kind.TYPE.kind, change.name, change.why)
            if written.metadata.resource_version != change.body["metadata"]["resourceVersion"]:
                self._wake()  # the cache has it already, so that no event starts the round that follows from it
        self._record(written)
        self._metrics.count_write("pool")
        return True

    def _count_failure(self, error: ApiError) -> bool:
        log.warning("%s", "; ".join((error.brief, *error.details)))
        self._metrics.count_failure("pool")
        return False

    def _record(self, written: KubeObject) -> None:
        """Put the response into the cache, so that the next round sees it."""
        informers = self._informers
        if isinstance(written, VGPUPool):
            self.pools.record_write(self.pools.get(written.name), written)
        elif isinstance(written, VGPUDevice):
            informers.vgpus.record_write(informers.vgpus.get(written.name), written)
        elif isinstance(written, SRIOVGPUDevice):
            informers.gpus.record_write(informers.gpus.get(written.name), written)
        elif isinstance(written, MigConfiguration):
            informers.migs.record_write(informers.migs.get(written.name), written)


def _is_ready(pool: VGPUPool) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pool.status.conditions)
