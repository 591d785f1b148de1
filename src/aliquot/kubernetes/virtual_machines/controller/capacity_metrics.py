"""Capacity metrics for Prometheus, computed at each scrape so that they are never stale."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.kubernetes.virtual_machines.controller.claim_informers import VmClaimInformers
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.metrics.instruments import MetricFamilies

NAME = "aliquot_controller_vm_devices"
"""Samples have the labels ``resource`` and ``what`` (total, usable, allocated, pending, stopped, allocatable)."""
CLAIMED = "aliquot_controller_vm_claim_devices"
"""Samples have the labels ``device_class`` and ``what`` (allocated, pending, stopped)."""


class CapacityCollector(Collector):
    """The collector of capacity metrics. It yields nothing until the informers have synced."""

    def __init__(self, informers: VmClusterInformers, claims: VmClaimInformers) -> None:
        self._informers, self._claims = informers, claims

    def collect(self) -> Iterator[Metric]:
        if not self._informers.synced:
            return
        out = MetricFamilies()
        for resource_capacity in self._informers.capacity().resources.values():
            for what in ("total", "usable", "allocated", "pending", "stopped", "allocatable"):
                out.add(NAME, (resource_capacity.resource, what), getattr(resource_capacity, what))
        for claimed in self._claims.classes() or ():
            for what in ("allocated", "pending", "stopped"):
                out.add(CLAIMED, (claimed.device_class, what), getattr(claimed, what))
        yield from out.all()
