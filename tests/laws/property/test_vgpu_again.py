"""Property of plans with schedulers, sizes and plugin parameters of vGPUs: what was applied is planned only once."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ExecutionContext
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from support.selection import parts
from support.simnodes import Node
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder

TYPES = {
    "l40s:vfio": ("L40S-4Q", "L40S-8Q", "L40S-12Q", "L40S-8A"),
    "a2:mdev": ("A2-4Q", "A2-8Q", "A2-4C", "A2-4A"),
    "rtx-pro-6000-blackwell-server-edition:vfio": ("DC-1-6Q", "DC-1-12Q", "DC-1-24Q", "DC-2-24Q"),
}
SCHEDULERS = (None, "best-effort", "equal-share", "equal-share,2ms", "fixed-share", "fixed-share,480Hz")


def draw_request(inventory: Inventory, types: tuple[str, ...], chance: random.Random) -> DesiredGpu:
    """Draw a desired state of the first GPU."""
    gpu = inventory.gpus[0]
    table = inventory.vgpu_table(gpu)
    assert table is not None
    vgpus = []
    for name in (chance.choice(types) for _ in range(chance.randint(0, 4))):
        kind = table.by_name[name]
        parameters = chance.choice([None, "", "enable_uvm=1"]) if kind.series in "QC" else None
        vgpus.append(DesiredVgpu(kind.id or 0, kind.name, parameters=parameters))
    mixed = chance.choice([None, True, False])
    found = DesiredGpu(gpu.pci, None, (), "a test", tuple(vgpus), mixed_size=mixed)
    if table.by_name[types[0]].mig_backed:
        found = factory.share(gpu, tuple(vgpus), mixed)
    return msgspec.structs.replace(found, scheduler=chance.choice(SCHEDULERS))


@pytest.mark.parametrize("seed", parts(6))
@pytest.mark.parametrize("template", list(TYPES))
def test_a_second_plan_is_empty(template: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    node = Node(template, directory=str(tmp_path))
    applied = 0
    for _ in range(10 if template.startswith("rtx") else 24):  # GPU instances take long
        wanted = Desired((draw_request(node.whole.read(), TYPES[template], chance),))
        first = plan(node.whole.read(), wanted)
        if first.blockers:
            continue
        ports = ExecutionContext(
            node.whole, node.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
        )
        outcome = apply(first, ports, lambda line: None)
        assert outcome.error is None, (seed, wanted, outcome.error)
        again = plan(node.whole.read(), wanted)
        assert (again.actions, again.blockers) == ((), ()), (seed, wanted)
        applied += bool(first.actions)
    assert applied, seed
