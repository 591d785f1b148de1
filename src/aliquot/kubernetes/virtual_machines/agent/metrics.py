"""The devices agent's figures, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.virtual_machines.agent import node_report as tell
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects, View
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentTally
from aliquot.metrics.apply_metrics import REFUSED
from aliquot.metrics.snapshot import look, rules


class Tally(AgentTally):
    """What both agents count, and vGPUs, writes, and what is not ready."""

    def __init__(self, node: str) -> None:
        super().__init__(node, "aliquot_devices", (tell.WORKING, tell.WAITING, tell.IDLE))
        self._writes = make.counter("aliquot_devices_writes_total", self.registry)
        self._vgpus = make.gauge("aliquot_devices_vgpus", self.registry)
        self._unmet = make.gauge("aliquot_devices_unmet", self.registry)

    def looked(self, view: View, plans: Iterable[Plan] = ()) -> None:
        """What was seen, and the plan for each wish. Of GPUs that could not be read nothing is told."""
        plans = tuple(plans)
        wishes = tuple(wish for plan in plans for wish in plan.desired.gpus)
        blocked = rules(blocker for plan in plans for blocker in plan.blockers)
        seen = self._seen(view.inventory, view.now, blocked)
        self._saw(look(self._node, view.inventory, Desired(wishes) if wishes else None, seen), plans)
        if view.inventory is None:
            return
        self._vgpus.clear()
        for gpu in view.inventory.gpus:
            for vgpu in gpu.vgpus:
                self._vgpus.labels(self._node, vgpu.type).inc()

    def objects(self, objects: Objects) -> None:
        """Counts what is not ready."""
        counts = {
            "SRIOVGPUDevice": [item.status.conditions for item in objects.gpus.values()],
            "VGPUDevice": [item.status.conditions for item in objects.vgpus.values()],
            "MigConfiguration": [item.status.conditions for item in objects.migs.values()],
            "PCIDeviceClaim": [item.status.conditions for item in objects.claims.values()],
        }
        for kind, rows in counts.items():
            unmet = sum(any(c.type == tell.READY and c.status == "False" for c in row) for row in rows)
            self._unmet.labels(self._node, kind).set(unmet)

    def refused(self, seconds: float) -> None:
        """Nothing was touched."""
        self.ended(REFUSED, seconds)

    def wrote(self, verb: str, kind: str) -> None:
        self._writes.labels(verb, kind).inc()
