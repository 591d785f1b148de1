"""The devices agent's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from aliquot.core.model.desired import Desired
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.virtual_machines.agent import node_report
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentMetrics, SharedMetrics
from aliquot.metrics.apply_metrics import REFUSED
from aliquot.metrics.snapshot import rules, take_snapshot


class DevicesAgentMetrics(AgentMetrics):
    """The metrics that both agents share, and counts of vGPUs, writes and objects that are not ready."""

    def __init__(self, node: str, shared: SharedMetrics | None = None) -> None:
        super().__init__(node, "aliquot_devices", get_args(node_report.DevicesState), shared)
        self._writes = make.counter("aliquot_devices_writes_total", self.registry)
        self._vgpus = make.gauge("aliquot_devices_vgpus", self.registry)
        self._unmet = make.gauge("aliquot_devices_unmet", self.registry)

    def record_observation(self, view: NodeView, plans: Iterable[Plan] = ()) -> None:
        """Record an inventory and the plan for each GPU's desired state. Unreadable GPUs are omitted."""
        plans = tuple(plans)
        desired_gpus = tuple(desired_gpu for plan in plans for desired_gpu in plan.desired.gpus)
        blocked = rules(blocker for plan in plans for blocker in plan.blockers)
        details = self._details(view.inventory, view.now, blocked)
        self._record_snapshot(
            take_snapshot(self._node, view.inventory, Desired(desired_gpus) if desired_gpus else None, details), plans
        )
        if view.inventory is None:
            return
        self._vgpus.clear()
        for gpu in view.inventory.gpus:
            for vgpu in gpu.vgpus:
                self._vgpus.labels(self._node, vgpu.type).inc()

    def record_objects(self, objects: Objects) -> None:
        """Count the objects that are not ready."""
        counts = {
            "SRIOVGPUDevice": [item.status.conditions for item in objects.gpus.values()],
            "VGPUDevice": [item.status.conditions for item in objects.vgpus.values()],
            "MigConfiguration": [item.status.conditions for item in objects.migs.values()],
            "PCIDeviceClaim": [item.status.conditions for item in objects.claims.values()],
        }
        for kind, rows in counts.items():
            unmet = sum(any(c.type == node_report.READY and c.status == "False" for c in row) for row in rows)
            self._unmet.labels(self._node, kind).set(unmet)

    def record_refusal(self, seconds: float) -> None:
        """Record a change that was refused before it touched anything."""
        self.record_end(REFUSED, seconds)

    def count_write(self, verb: str, kind: str) -> None:
        self._writes.labels(verb, kind).inc()
