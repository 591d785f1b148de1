"""Hypothesis strategies: GPUs that share with VMs, in any reachable state, and desired states."""

from __future__ import annotations

import random

import msgspec
from hypothesis import strategies as st

import support.vgpufactory as factory
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.semantics import step
from laws.oracle import raw

replace = msgspec.structs.replace

PRODUCTS = (
    "NVIDIA A2",
    "NVIDIA L40S",
    "Tesla T4",
    "NVIDIA A30",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA H100 PCIe",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
)
SCHEDULERS = ("best-effort", "equal-share", "equal-share,2ms", "fixed-share,480Hz")


def after(inventory: Inventory, desired: Desired) -> Inventory:
    """Return the node after a plan, or unchanged if the plan is blocked."""
    for action in plan(inventory, desired).actions:
        inventory = step(inventory, action)
    return inventory


def vgpu_request(gpu: Gpu, dice: random.Random) -> DesiredGpu:
    """Draw some vGPUs: mostly of one kind, sometimes more than fit."""
    table = factory.table(gpu.product)
    named = [t for t in table.types if t.id is not None]
    backed = dice.random() < 0.5
    fitting = [t for t in named if t.mig_backed == backed] or named
    mixed = True if table.sriov and not backed and dice.random() < 0.5 else None
    first = dice.choice(fitting)
    rest = fitting if mixed or first.mig_backed else [t for t in fitting if t.fb_mib == first.fb_mib]
    chosen = [dice.choice(rest) for _ in range(dice.randint(1, dice.choice((2, 4, 9))))]
    counts: dict[str, int] = {}
    for each in chosen:
        counts[each.short] = counts.get(each.short, 0) + 1
    found = factory.share(gpu, factory.vgpus(gpu.product, counts), mixed)
    scheduled = not first.mig_backed or any(t.per_instance > 1 for t in table.types)
    return replace(found, scheduler=dice.choice(SCHEDULERS)) if scheduled and dice.random() < 0.3 else found


def mig_request(gpu: Gpu, dice: random.Random) -> DesiredGpu:
    """Draw a legal geometry, or MIG mode off."""
    if not gpu.mig.capable or dice.random() < 0.2:
        return DesiredGpu(gpu.pci, mig=False if gpu.mig.capable else None, instances=())
    family = catalog.family(gpu.family or "")
    state = sorted(dice.choice(raw.states(family.name)))
    profiles = [family.by_name[name] for name, _ in state]
    return DesiredGpu(
        gpu.pci, mig=True, instances=tuple(DesiredInstance(p.id, p.name, (p.default_compute.id,)) for p in profiles)
    )


def any_desired_gpu(gpu: Gpu, dice: random.Random) -> DesiredGpu:
    """Draw a desired GPU of any kind."""
    bare = DesiredGpu(gpu.pci, mig=None, instances=None)
    addresses = list(gpu.virtual.addresses) if gpu.virtual else []
    some = tuple(sorted(dice.sample(addresses, min(2, len(addresses)))))
    return dice.choice(
        (
            lambda: vgpu_request(gpu, dice),
            lambda: vgpu_request(gpu, dice),
            lambda: vgpu_request(gpu, dice),
            lambda: mig_request(gpu, dice),
            lambda: replace(bare, vgpus=()),
            lambda: replace(bare, functions=dice.random() < 0.5),
            lambda: replace(bare, vgpus=(), functions=False),
            lambda: replace(bare, passthrough=dice.random() < 0.7),
            lambda: replace(bare, vfio_bound=some),
            lambda: replace(bare, vgpus=(), mixed_size=dice.random() < 0.5),
        )
    )()


def _disturbed(gpu: Gpu, dice: random.Random) -> Gpu:
    """Remove some vGPUs, mark some as held, and sometimes pass a virtual function through."""
    if gpu.passthrough or gpu.virtual is None:
        return gpu
    gone = {v.uuid for v in gpu.vgpus if dice.random() < 0.25}
    functions = {v.function for v in gpu.vgpus if v.uuid in gone}
    kept = tuple(
        replace(v, holders=(factory.VM,)) if dice.random() < 0.2 else v for v in gpu.vgpus if v.uuid not in gone
    )
    instances = []
    for each in gpu.instances:
        holders = tuple(h for h in each.holders if h.id not in functions)
        instances.append(replace(each, holders=holders, held=bool(holders)))
    carrying = {v.function for v in kept}
    free = [f for f in gpu.virtual.functions if f.pci not in carrying]
    unavailable = {f.pci for f in free if dice.random() < 0.05 and gpu.virtual.framework == "sriov-mdev"}
    made = tuple(replace(f, driver=VFIO) if f.pci in unavailable else f for f in gpu.virtual.functions)
    return replace(gpu, vgpus=kept, instances=tuple(instances), virtual=replace(gpu.virtual, functions=made))


@st.composite
def nodes(draw: st.DrawFn, size: int = 1) -> tuple[Inventory, Desired]:
    """Draw a node of ``size`` GPUs in states that requests have led to, and a desired state for each."""
    dice = random.Random(draw(st.integers(0, 2**32)))
    gpus: list[Gpu] = []
    desired_gpus: list[DesiredGpu] = []
    for n in range(size):
        pci = f"0000:{n + 8:02x}:00.0"
        gpu = factory.gpu(dice.choice(PRODUCTS), on=dice.random() < 0.6, pci=pci)
        for _ in range(dice.randint(0, 3)):
            gpu = after(factory.node(gpu), Desired(gpus=(any_desired_gpu(gpu, dice),))).gpus[0]
            gpu = _disturbed(gpu, dice) if dice.random() < 0.6 else gpu
        gpus.append(gpu)
        desired_gpus.append(any_desired_gpu(gpu, dice))
    return factory.node(*gpus), Desired(gpus=tuple(desired_gpus), name="case")
