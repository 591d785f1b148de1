"""Last sample of the usage of a node's GPUs and instances."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage, coarsen
from aliquot.core.model.vgpu_usage import VgpuUsage, license_states
from aliquot.core.planner.usage_tracking import usage_of_unchanged


class LastUsage(msgspec.Struct, frozen=True):
    """A sample of usage."""

    inventory: Inventory | None = None
    """The inventory at that time."""
    usage: tuple[Usage, ...] = ()
    at: float = 0.0
    """Wall time in seconds."""
    vgpus: tuple[VgpuUsage, ...] = ()
    """The vGPUs that VMs run with."""

    def current_licenses(self, current: Inventory) -> tuple[VgpuUsage, ...]:
        """Return the state of the license of each vGPU that VMs run with."""
        return license_states(self.vgpus, current.gpus)

    def current_usage(self, current: Inventory, past_runs: Sequence[PastRun]) -> tuple[Usage, ...]:
        """Return the rounded usage of the instances that still exist.

        It is rounded so that an idle node is not written again. Ids are reused, so usage of a destroyed instance must
        not be attributed to a new one: ``past_runs``, the node's newest changes, show which GPUs changed.
        """
        if self.inventory is None:
            return ()
        changed_gpus = {pci for past in past_runs if past.ended >= self.at for pci in past.gpus}
        return coarsen(usage_of_unchanged(self.usage, self.inventory, current, changed_gpus))
