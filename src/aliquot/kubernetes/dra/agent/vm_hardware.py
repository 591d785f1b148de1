"""The GPUs of a node that serves VMs: its driver may be gone, because every GPU is passed through."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.node.connect import Connection

T = TypeVar("T")


class VmHardware:
    """The worker's GPUs, including those that NVIDIA's driver does not have."""

    def __init__(self, worker: GpuWorker) -> None:
        self._worker = worker

    @property
    def unhealthy(self) -> frozenset[str]:
        """The UUIDs of devices that must not be allocated."""
        return self._worker.unhealthy

    async def read(self) -> tuple[Inventory, Facts]:
        """Read inventory and facts, without a driver if every GPU is passed through. Raises as ``GpuWorker.read``.

        A GPU that has no driver at all waits for it: what was published of it must stay.
        """
        found = await self._worker.read(all_gpus=True)
        inventory = found[0]
        if inventory.driver or (inventory.gpus and all(gpu.passthrough for gpu in inventory.gpus)):
            return found
        return await self._worker.read()

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome:
        return await self._worker.apply(plan, report, all_gpus=True)

    async def call(self, job: Callable[[Connection], T]) -> T:
        return await self._worker.call(job, all_gpus=True)
