"""Agreement of two driver models.

On a simulated host, the engine applies every plan as predicted, including functions, UUIDs, places and GPU instances.
The simulated driver lists exactly the types that ``step`` and the rules allow.
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
from support.simnodes import Node

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


def facts(gpu: Gpu, reported: bool) -> Facts:
    """Return what a plan predicts of a GPU, with the places of vGPUs if the framework reports them (mdevs do not)."""
    virtual = gpu.virtual
    assert virtual is not None
    shares: Facts = [(gpu.passthrough, gpu.mig.enabled, len(virtual.functions), bool(virtual.mixed_size))]
    shares += [(f.pci, f.driver) for f in virtual.functions]
    shares += sorted((i.id, i.profile_id, i.placement) for i in gpu.instances)
    places = {v.uuid: v.placement for v in gpu.vgpus if reported}
    return shares + sorted((v.function, v.uuid, v.type_id, v.gpu_instance, places.get(v.uuid)) for v in gpu.vgpus)


def agreed(inventory: Inventory) -> None:
    """Assert that the driver's own list of creatable types follows the rules. An L40S has its recorded list, without
    the C series.
    """
    for gpu in inventory.gpus:
        messages = [(a.name, a.differs) for a in type_answers(inventory, gpu) if a.differs]
        assert not [name for name, _ in messages if not ("L40S" in name and name.endswith("C"))]


def _unforeseen(gpu: Gpu, desired_gpu: DesiredGpu) -> bool:
    """Report whether a plan cannot know a fact yet: the framework of disabled virtual functions, types that the driver
    lacks.
    """
    assert gpu.virtual is not None
    compute = gpu.product == "NVIDIA L40S" and any(v.type.endswith("C") for v in desired_gpu.vgpus or ())
    return compute or (not gpu.virtual.enabled and bool(desired_gpu.vfio_bound))


@pytest.mark.parametrize("seed", parts(10))
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_simulated_host_does_what_was_predicted(template: str, seed: int, tmp_path: Path) -> None:
    dice = random.Random(f"{template} {seed}")
    node = Node(template, directory=str(tmp_path))
    for _ in range(8):
        inventory = node.whole.read()
        agreed(inventory)
        desired_gpu = strategies.any_desired_gpu(inventory.gpus[0], dice)
        if _unforeseen(inventory.gpus[0], desired_gpu):
            continue
        desired = Desired(gpus=(desired_gpu,), name="case")
        got = plan(inventory, desired)
        if got.blockers:
            continue
        predicted = inventory
        for action in got.actions:
            predicted = step(predicted, action)
        outcome = node.apply(desired)
        assert outcome.status in ("done", "nothing"), (desired_gpu, got.actions, outcome)
        after = node.whole.read()
        assert verify(after, desired) == ()
        reported = template.endswith(":vfio")
        assert facts(after.gpus[0], reported) == facts(predicted.gpus[0], reported), (desired_gpu, got.actions)
