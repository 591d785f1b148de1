"""Two models of the driver agree: every plan that is made for a simulated host is carried out by the engine as it was
predicted, to the function, the UUID, the place and the GPU instance; and what ``step`` and the rules say is creatable,
the simulated driver lists.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from aliquot.core.planner.vgpu.creatable_types import type_answers
from laws.property import vgpu_strategies as strategies
from support.selection import parts
from support.simworld import Node

TEMPLATES = (
    "l40s:vfio",
    "a2:mdev",
    "tesla-t4:mdev",
    "a30:mdev",
    "h100-pcie:vfio",
    "a100-sxm4-40gb:mdev",
    "rtx-pro-6000-blackwell-server-edition:vfio",
)
Facts = list[tuple[object, ...]]


def facts(gpu: Gpu, told: bool) -> Facts:
    """What a plan predicts of a GPU; the places of vGPUs where the world tells them (mdevs do not)."""
    virtual = gpu.virtual
    assert virtual is not None
    shares: Facts = [(gpu.passthrough, gpu.mig.enabled, len(virtual.functions), bool(virtual.mixed_size))]
    shares += [(f.pci, f.driver) for f in virtual.functions]
    shares += sorted((i.id, i.profile_id, i.placement) for i in gpu.instances)
    places = {v.uuid: v.placement for v in gpu.vgpus if told}
    return shares + sorted((v.function, v.uuid, v.type_id, v.gpu_instance, places.get(v.uuid)) for v in gpu.vgpus)


def agreed(inventory: Inventory) -> None:
    """The driver's own list of creatable types is what the rules say. An L40S has the list that was recorded of one,
    without the C series.
    """
    for gpu in inventory.gpus:
        told = [(a.name, a.differs) for a in type_answers(inventory, gpu) if a.differs]
        assert not [name for name, _ in told if not ("L40S" in name and name.endswith("C"))]


def _unforeseen(gpu: Gpu, wish: DesiredGpu) -> bool:
    """What shows only later: the world of virtual functions that are off, types that the driver does not have."""
    assert gpu.virtual is not None
    compute = gpu.product == "NVIDIA L40S" and any(v.type.endswith("C") for v in wish.vgpus or ())
    return compute or (not gpu.virtual.enabled and bool(wish.vfio_bound))


@pytest.mark.parametrize("seed", parts(10))
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_simulated_host_does_what_was_predicted(template: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{template} {seed}")
    node = Node(template, directory=str(tmp_path))
    for _ in range(8):
        inventory = node.whole.read()
        agreed(inventory)
        wish = strategies.any_wish(inventory.gpus[0], dice)
        if _unforeseen(inventory.gpus[0], wish):
            continue
        desired = Desired(gpus=(wish,), name="case")
        got = plan(inventory, desired)
        if got.blockers:
            continue
        predicted = inventory
        for action in got.actions:
            predicted = step(predicted, action)
        outcome = node.apply(desired)
        assert outcome.status in ("done", "nothing"), (wish, got.actions, outcome)
        after = node.whole.read()
        assert verify(after, desired) == ()
        told = template.endswith(":vfio")
        assert facts(after.gpus[0], told) == facts(predicted.gpus[0], told), (wish, got.actions)
