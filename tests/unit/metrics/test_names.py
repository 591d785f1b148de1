"""The table of metrics against the pages: each page has only metrics of the table, and each of those is on a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Found
from prometheus_client.registry import Collector

from aliquot.dashboard.page_metrics import DashboardMetrics as DashboardFigures
from aliquot.kubernetes.controller.metrics import ControllerStateCollector
from aliquot.kubernetes.dra.agent.metrics import ClaimAgentMetrics
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.controller.pending_pods import PendingPodCounts
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.controller.capacity_metrics import CapacityCollector as VmFigures
from aliquot.kubernetes.virtual_machines.controller.claim_informers import VmClaimInformers
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimClassCapacity
from aliquot.metrics.controller_metrics import ControllerMetrics
from aliquot.metrics.fleet_metrics import FleetCollector
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.host_exporter import HostExporter
from aliquot.metrics.labels import MEANINGS
from aliquot.metrics.metric import AGENT, CLAIMS, CONTROLLER, DASHBOARD, DEVICES, HOST, SLURM, TYPES
from aliquot.metrics.registry import NAMES, STANDARD, TABLE
from aliquot.node.connect import Connection
from aliquot.slurm.controller.metrics import SlurmMetrics
from unit.metrics.snapshots import everything, source

Names = dict[str, tuple[str, tuple[str, ...]]]


def reported(*collectors: Collector) -> Names:
    """Return the type and labels of all families by name. A family without a sample yet has no labels here."""
    found: Names = {}
    for collector in collectors:
        for family in collector.collect():
            if not family.name.startswith(STANDARD):
                found[_full(family)] = family.type, _labels(family)
    return found


def _full(family: Found) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _labels(family: Found) -> tuple[str, ...]:
    samples = [s for s in family.samples if not s.name.endswith("_created")]
    return tuple(sorted({label for s in samples for label in s.labels} - {"le"}))


class _Environment:
    """A cluster with one kind of device for VMs."""

    synced = True

    class _Figure:
        resource = "nvidia.com/NVIDIA_A2-4Q"
        total = usable = allocated = pending = stopped = allocatable = 1

    class _Capacity:
        resources: dict[str, object]

    def capacity(self) -> object:
        made = self._Capacity()
        made.resources = {"a": self._Figure()}
        return made


class _Claims:
    def classes(self) -> tuple[ClaimClassCapacity, ...]:
        return (ClaimClassCapacity("vgpu.aliquot.dev", 1, 1, 1),)


def unused() -> AbstractContextManager[Connection]:
    raise AssertionError


def looker(registry: CollectorRegistry) -> Names:
    return reported(registry, GpuCollector(lambda: (everything(),)))


PAGES: dict[str, Callable[[], Names]] = {
    AGENT: lambda: looker(LabelAgentMetrics("n").page.registry),
    DEVICES: lambda: looker(DevicesAgentMetrics("n").page.registry),
    CLAIMS: lambda: looker(ClaimAgentMetrics("n").page.registry),
    HOST: lambda: looker(HostExporter("n", "n", unused).page.registry),
    CONTROLLER: lambda: reported(
        ControllerMetrics().registry,
        ControllerStateCollector(lambda: PendingPodCounts(2, 1, 0.0), lambda: 1.0),
        VmFigures(cast(VmClusterInformers, _Environment()), cast(VmClaimInformers, _Claims())),
    ),
    SLURM: lambda: reported(SlurmMetrics().page.registry),
    DASHBOARD: lambda: reported(
        DashboardFigures(source()).page.registry, FleetCollector(lambda: ((everything(), "fresh"),))
    ),
}


@pytest.mark.parametrize("who", PAGES)
def test_a_page_has_what_the_table_says_of_it_and_nothing_else(who: str) -> None:
    found = PAGES[who]()
    wanted = {row.name for row in TABLE if who in row.by}
    only_agents = {"aliquot_wish_blocked", "aliquot_unhealthy_devices"}
    assert set(found) - wanted <= (only_agents if who == HOST else set()), "on the page, but not in the table"
    assert wanted <= set(found), "in the table, but not on the page"
    for name, (kind, labels) in found.items():
        row = NAMES[name]
        assert kind == row.type, name
        assert not labels or labels == tuple(sorted(row.labels)), name


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_names_are_as_prometheus_wants_them(row: object) -> None:
    from aliquot.metrics.metric import Metric

    assert isinstance(row, Metric)
    assert re.fullmatch(r"aliquot(_[a-z0-9]+)+", row.name)
    assert row.type in TYPES
    assert (row.type == "counter") == row.name.endswith("_total")
    assert (row.type == "info") == row.name.endswith("_info")
    assert not re.search(r"_(ms|milliseconds|mib|mb|percent|minutes|hours|count|sum|bucket)$", row.name)
    assert ("timestamp" not in row.name) or row.name.endswith("_timestamp_seconds")
    assert row.type != "histogram" or row.unit == "seconds"
    assert row.help[0].islower() or row.help.startswith(("GPU", "vGPU")) or row.help[0].isdigit()
    assert not row.help.endswith(".")
    assert row.by
    assert set(row.labels) <= set(MEANINGS)
    assert len(set(row.labels)) == len(row.labels)


def test_every_name_and_every_meaning_is_there_once() -> None:
    assert len(NAMES) == len(TABLE)
    assert set(MEANINGS) == {label for row in TABLE for label in row.labels}


def test_no_label_can_hold_the_name_of_a_user_or_of_a_job() -> None:
    private = {
        "user",
        "job",
        "pod",
        "pid",
        "process",
        "container",
        "holder",
        "holders",
        "message",
        "reason",
        "namespace",
    }
    assert not private & set(MEANINGS)
