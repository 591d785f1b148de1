"""The node agent's figures: what kubelet says counts as holding, and a look that fails takes nothing back."""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.usage import Usage
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics as DevicesTally
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView
from support import agent_looks
from unit.metrics.looks import plain


def observed(inventory: Inventory | None) -> Observation:
    return msgspec.structs.replace(agent_looks.look(None, plain()), inventory=inventory)


def held(tally: LabelAgentMetrics) -> int:
    text = tally.page.text().decode()
    rows = [line for line in text.splitlines() if line.startswith("aliquot_instances{") and 'state="held"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in rows))


def with_pod(inventory: Inventory) -> Inventory:
    gpu = inventory.gpus[0]
    pod = (Holder("pod", "ml/train-0"),)
    instances = tuple(msgspec.structs.replace(i, held=True, holders=i.holders or pod) for i in gpu.instances)
    return msgspec.structs.replace(inventory, gpus=(msgspec.structs.replace(gpu, instances=instances),))


def test_what_kubelet_gave_away_is_held_and_stays_so_at_the_next_look() -> None:
    tally, inventory = LabelAgentMetrics("n"), plain()
    tally.record_observation(observed(inventory))
    assert held(tally) == 1
    tally.record_holders(with_pod(inventory))
    assert held(tally) == 2
    tally.record_observation(observed(inventory))
    assert held(tally) == 2, "for a moment it was not held"
    tally.record_holders(inventory)
    assert held(tally) == 1, "the pod has ended"


def test_what_kubelet_says_of_other_instances_is_not_taken() -> None:
    tally, inventory = LabelAgentMetrics("n"), plain()
    tally.record_observation(observed(inventory))
    other = msgspec.structs.replace(with_pod(inventory), driver="another")
    tally.record_holders(other)
    assert held(tally) == 1


def test_a_look_that_failed_tells_of_no_gpu() -> None:
    tally = LabelAgentMetrics("n")
    tally.record_observation(observed(plain()))
    tally.record_observation(observed(None))
    text = tally.page.text().decode()
    assert "aliquot_look_success{" in text
    assert "aliquot_gpu_info{" not in text


def told(tally: LabelAgentMetrics | DevicesTally) -> set[str]:
    """The instances with figures of use, by id and profile."""
    rows = [line for line in tally.page.text().decode().splitlines() if line.startswith(METRICS)]
    return {row.partition('GPU_I_ID="')[2].partition('"')[0] for row in rows}


METRICS = (
    "aliquot_instance_memory_used_bytes{",
    "aliquot_instance_idle_since",
    "aliquot_instance_smaller_profile_info{",
)


def looked(tally: LabelAgentMetrics | DevicesTally, inventory: Inventory | None) -> None:
    if isinstance(tally, LabelAgentMetrics):
        tally.record_observation(observed(inventory))
    else:
        tally.record_observation(NodeView("n", "boot", 1000.0, inventory=inventory))


@pytest.mark.parametrize("kind", [LabelAgentMetrics, DevicesTally])
def test_an_instance_is_not_told_with_the_figures_of_one_that_had_its_id(
    kind: type[LabelAgentMetrics | DevicesTally],
) -> None:
    tally, inventory = kind("n"), plain()
    pieces = inventory.gpus[0].instances
    looked(tally, inventory)
    watched = time.time() - 30 * 3600
    tally.usage = tuple(
        Usage(
            inventory.gpus[0].pci, i.id, i.profile, 100, 40000, idle_since=watched, peak_mib=100, watched_since=watched
        )
        for i in pieces
    )
    every = {str(i.id) for i in pieces}
    assert told(tally) == every
    looked(tally, None)
    looked(tally, inventory)
    assert told(tally) == every, "one look that failed takes nothing back"
    first, second = pieces
    moved = msgspec.structs.replace(second, placement="5:1")
    for other in (moved, msgspec.structs.replace(second, profile="1g.10gb", profile_id=15, placement="4:2")):
        cut = msgspec.structs.replace(inventory.gpus[0], instances=(first, other))
        looked(tally, msgspec.structs.replace(inventory, gpus=(cut,)))
        assert told(tally) == {str(first.id)}
