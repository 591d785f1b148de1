"""Metrics of the node agent: the kubelet's allocations count as held, and a failed read keeps the previous values."""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.usage import Usage
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView
from support import agent_observations
from unit.metrics.snapshots import plain


def observed(inventory: Inventory | None) -> Observation:
    return msgspec.structs.replace(agent_observations.make_observation(None, plain()), inventory=inventory)


def held(metrics: LabelAgentMetrics) -> int:
    text = metrics.page.text().decode()
    rows = [line for line in text.splitlines() if line.startswith("aliquot_instances{") and 'state="held"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in rows))


def with_pod(inventory: Inventory) -> Inventory:
    gpu = inventory.gpus[0]
    pod = (Holder("pod", "ml/train-0"),)
    instances = tuple(msgspec.structs.replace(i, held=True, holders=i.holders or pod) for i in gpu.instances)
    return msgspec.structs.replace(inventory, gpus=(msgspec.structs.replace(gpu, instances=instances),))


def test_what_kubelet_allocated_is_held_and_stays_so_at_the_next_observation() -> None:
    metrics, inventory = LabelAgentMetrics("n"), plain()
    metrics.record_observation(observed(inventory))
    assert held(metrics) == 1
    metrics.record_holders(with_pod(inventory))
    assert held(metrics) == 2
    metrics.record_observation(observed(inventory))
    assert held(metrics) == 2, "it was not held for a moment"
    metrics.record_holders(inventory)
    assert held(metrics) == 1, "the pod has ended"


def test_what_kubelet_says_of_other_instances_is_not_taken() -> None:
    metrics, inventory = LabelAgentMetrics("n"), plain()
    metrics.record_observation(observed(inventory))
    other = msgspec.structs.replace(with_pod(inventory), driver="another")
    metrics.record_holders(other)
    assert held(metrics) == 1


def test_a_look_that_failed_tells_of_no_gpu() -> None:
    metrics = LabelAgentMetrics("n")
    metrics.record_observation(observed(plain()))
    metrics.record_observation(observed(None))
    text = metrics.page.text().decode()
    assert "aliquot_look_success{" in text
    assert "aliquot_gpu_info{" not in text


def reported(metrics: LabelAgentMetrics | DevicesAgentMetrics) -> set[str]:
    """Return the instances with usage metrics, by id and profile."""
    rows = [line for line in metrics.page.text().decode().splitlines() if line.startswith(METRICS)]
    return {row.partition('GPU_I_ID="')[2].partition('"')[0] for row in rows}


METRICS = (
    "aliquot_instance_memory_used_bytes{",
    "aliquot_instance_idle_since",
    "aliquot_instance_smaller_profile_info{",
)


def measured(metrics: LabelAgentMetrics | DevicesAgentMetrics, inventory: Inventory | None) -> None:
    if isinstance(metrics, LabelAgentMetrics):
        metrics.record_observation(observed(inventory))
    else:
        metrics.record_observation(NodeView("n", "boot", 1000.0, inventory=inventory))


@pytest.mark.parametrize("kind", [LabelAgentMetrics, DevicesAgentMetrics])
def test_an_instance_is_not_reported_with_the_figures_of_one_that_had_its_id(
    kind: type[LabelAgentMetrics | DevicesAgentMetrics],
) -> None:
    metrics, inventory = kind("n"), plain()
    instances = inventory.gpus[0].instances
    measured(metrics, inventory)
    watched = time.time() - 30 * 3600
    metrics.usage = tuple(
        Usage(
            inventory.gpus[0].pci, i.id, i.profile, 100, 40000, idle_since=watched, peak_mib=100, watched_since=watched
        )
        for i in instances
    )
    every = {str(i.id) for i in instances}
    assert reported(metrics) == every
    measured(metrics, None)
    measured(metrics, inventory)
    assert reported(metrics) == every, "a failed read keeps the previous values"
    first, second = instances
    moved = msgspec.structs.replace(second, placement="5:1")
    for other in (moved, msgspec.structs.replace(second, profile="1g.10gb", profile_id=15, placement="4:2")):
        cut = msgspec.structs.replace(inventory.gpus[0], instances=(first, other))
        measured(metrics, msgspec.structs.replace(inventory, gpus=(cut,)))
        assert reported(metrics) == {str(first.id)}
