"""Capacity for Prometheus: computed when it is asked for, so that it is never stale."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.kubernetes.virtual_machines.controller.informers import World
from aliquot.metrics.instruments import Families

NAME = "aliquot_controller_vm_devices"
"""Samples have the labels ``resource`` and ``what`` (total, usable, allocated, pending, stopped, allocatable)."""


class Figures(Collector):
    """Nothing before everything was read."""

    def __init__(self, world: World) -> None:
        self._world = world

    def collect(self) -> Iterator[Metric]:
        if not self._world.known:
            return
        out = Families()
        for figure in self._world.capacity().figures.values():
            for what in ("total", "usable", "allocated", "pending", "stopped", "allocatable"):
                out.add(NAME, (figure.resource, what), getattr(figure, what))
        yield from out.all()
