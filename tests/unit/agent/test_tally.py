"""The node agent's figures: what kubelet says counts as holding, and a look that fails takes nothing back."""

from __future__ import annotations

import msgspec

import agent_looks
from aliquot.agent.observation import Observation
from aliquot.agent.tally import Tally
from aliquot.model.inventory import Holder, Inventory
from unit.metrics.looks import plain


def observed(inventory: Inventory | None) -> Observation:
    return msgspec.structs.replace(agent_looks.look(None, plain()), inventory=inventory)


def held(tally: Tally) -> int:
    text = tally.page.text().decode()
    rows = [line for line in text.splitlines() if line.startswith("aliquot_instances{") and 'state="held"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in rows))


def with_pod(inventory: Inventory) -> Inventory:
    gpu = inventory.gpus[0]
    pod = (Holder("pod", "ml/train-0"),)
    instances = tuple(msgspec.structs.replace(i, held=True, holders=i.holders or pod) for i in gpu.instances)
    return msgspec.structs.replace(inventory, gpus=(msgspec.structs.replace(gpu, instances=instances),))


def test_what_kubelet_gave_away_is_held_and_stays_so_at_the_next_look() -> None:
    tally, inventory = Tally("n"), plain()
    tally.looked(observed(inventory))
    assert held(tally) == 1
    tally.held(with_pod(inventory))
    assert held(tally) == 2
    tally.looked(observed(inventory))
    assert held(tally) == 2, "for a moment it was not held"
    tally.held(inventory)
    assert held(tally) == 1, "the pod has ended"


def test_what_kubelet_says_of_other_instances_is_not_taken() -> None:
    tally, inventory = Tally("n"), plain()
    tally.looked(observed(inventory))
    other = msgspec.structs.replace(with_pod(inventory), driver="another")
    tally.held(other)
    assert held(tally) == 1


def test_a_look_that_failed_tells_of_no_gpu() -> None:
    tally = Tally("n")
    tally.looked(observed(plain()))
    tally.looked(observed(None))
    text = tally.page.text().decode()
    assert "aliquot_look_success{" in text
    assert "aliquot_gpu_info{" not in text
