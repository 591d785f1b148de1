"""The controller of pools: it watches VGPUPools and writes what ``pool_decision`` decides."""

from __future__ import annotations

import time
from collections.abc import Callable

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.harvester import MigConfiguration, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.pools.pool_decision import PoolChange, decide_pools
from aliquot.metrics.controller_metrics import ControllerMetrics


class PoolController:
    """The controller of pools. ``wake`` is called when a pool changed. ``clock`` is wall time in seconds."""

    def __init__(
        self,
        api: Api,
        informers: VmClusterInformers,
        metrics: ControllerMetrics,
        wake: Callable[[], None],
        *,
        timing: WatchTiming = KIND_TIMING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.api, self._informers, self._metrics, self._clock = api, informers, metrics, clock
        self._pools = Informer(VGPUPool, lambda _: wake(), timing=timing)
        self.follow = self._pools.follow

    async def run(self, leads: Callable[[], bool]) -> bool:
        """Write what the pools need now. Return False if something has to be tried again."""
        if not self._pools.synced:
            return True  # an installation may lack the kind
        done = True
        for change in decide_pools(self._pools.items, self._informers.snapshot(), self._clock()):
            if leads():
                done &= await self._write(change)
        return done

    async def _write(self, change: PoolChange) -> bool:
        subresource = "status" if change.status else None
        try:
            written = await self.api.patch(change.kind, change.name, change.body, subresource=subresource)
        except NotFoundError:
            return True
        except ConflictError:
            return False  # it changed meanwhile: the next round reads the change
        except ApiError as error:
            log.warning("%s", "; ".join((error.brief, *error.details)))
            self._metrics.count_failure("pool")
            return False
        if not change.status:
            log.info("%s %s: %s", change.kind.TYPE.kind, change.name, change.why)
        self._record(written)
        self._metrics.count_write("pool")
        return True

    def _record(self, written: KubeObject) -> None:
        """Put the response into the cache, so that the next round sees it."""
        informers = self._informers
        if isinstance(written, VGPUPool):
            self._pools.record_write(self._pools.get(written.name), written)
        elif isinstance(written, VGPUDevice):
            informers.vgpus.record_write(informers.vgpus.get(written.name), written)
        elif isinstance(written, SRIOVGPUDevice):
            informers.gpus.record_write(informers.gpus.get(written.name), written)
        elif isinstance(written, MigConfiguration):
            informers.migs.record_write(informers.migs.get(written.name), written)
