"""Hypothesis strategies: GPUs in any legal state of any family, with holders and compute instances, and desired
states.
"""

from __future__ import annotations

import random
from functools import cache

import msgspec
from hypothesis import strategies as st

from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Mig
from aliquot.core.planner import compute_instances as compute
from laws.oracle import mig_nodes, raw

replace = msgspec.structs.replace


@cache
def layouts(family: str, profile_id: int) -> tuple[tuple[int, ...], ...]:
    """Return compute layouts that fit into a profile: the whole, the empty one, and a few splits."""
    profile = catalog.family(family).by_id[profile_id]
    found: list[tuple[int, ...]] = [(profile.default_compute.id,)]
    for a in profile.compute:
        for n in range(1, a.max_instances + 1):
            for b in profile.compute:
                options = [(a.id,) * n, tuple(sorted((*(a.id,) * n, b.id)))]
                found += [o for o in options if o not in found and compute.fits(profile, o)]
    return tuple(found)


@st.composite
def gpus(draw: st.DrawFn, family: str, pci: str = mig_nodes.PCI) -> Gpu:
    """Draw a GPU in a legal state: some instances held, some without compute instances, some split."""
    table = catalog.family(family)
    dice = random.Random(draw(st.integers(0, 2**32)))
    if draw(st.integers(0, 9)) == 0:
        return replace(mig_nodes.gpu(table, (), pci=pci), mig=Mig(True, "disabled", "disabled"))
    state = dice.choice(raw.states(family))
    gpu = mig_nodes.gpu(table, state, [p for p in state if dice.random() < 0.25], pci=pci)
    return replace(gpu, instances=tuple(_vary(table, i, dice) for i in gpu.instances))


def _vary(table: catalog.Family, instance: GpuInstance, dice: random.Random) -> GpuInstance:
    if instance.held or dice.random() < 0.6:
        return instance
    if dice.random() < 0.4:
        return replace(instance, compute_instances=())
    return _with(table, instance, dice.choice(layouts(table.name, instance.profile_id)))


def _with(table: catalog.Family, instance: GpuInstance, layout: tuple[int, ...]) -> GpuInstance:
    profile = table.by_id[instance.profile_id]
    change = compute.change(profile, (), layout, None)
    assert change is not None
    made = tuple(
        ComputeInstance(n, part.profile, part.profile_id, part.placement or str(profile.default_compute.placements[0]))
        for n, part in enumerate(change.create)
    )
    return replace(instance, compute_instances=made)


@st.composite
def split_gpus(draw: st.DrawFn, family: str, pci: str = mig_nodes.PCI) -> Gpu:
    """Draw a GPU with at least two GPU instances of one profile and compute instances in each of them."""
    table = catalog.family(family)
    dice = random.Random(draw(st.integers(0, 2**32)))
    divisible = {p.name for p in table.profiles if len(p.compute) > 1}
    names = ([name for name, _ in state] for state in raw.states(family))
    twins = [n for n, each in enumerate(names) if any(name in divisible and each.count(name) > 1 for name in each)]
    gpu = mig_nodes.gpu(table, raw.states(family)[dice.choice(twins)], pci=pci)
    chosen = ([each for each in layouts(family, i.profile_id) if each] for i in gpu.instances)
    inside = [_with(table, i, dice.choice(options)) for i, options in zip(gpu.instances, chosen, strict=True)]
    return replace(gpu, instances=tuple(inside))


@st.composite
def requests(draw: st.DrawFn, family: str, pci: str = mig_nodes.PCI) -> DesiredGpu:
    """Draw a feasible desired GPU: some instances at requested placements, some split into compute instances, which are
    requested on their own in some cases.
    """
    table = catalog.family(family)
    dice = random.Random(draw(st.integers(0, 2**32)))
    if draw(st.integers(0, 9)) == 0:
        return DesiredGpu(pci=pci, mig=False)
    state = sorted(dice.choice(raw.states(family)))
    dice.shuffle(state)
    items = []
    for name, start in state:
        profile = table.by_name[name]
        whole = (profile.default_compute.id,)
        parts = dice.choice(layouts(family, profile.id)) if dice.random() < 0.25 else whole
        items.append(
            DesiredInstance(
                profile_id=profile.id,
                name=name,
                compute=parts,
                start=start if dice.random() < 0.2 else None,
                loose=parts not in ((), whole) and dice.random() < 0.5,
            )
        )
    return DesiredGpu(pci=pci, mig=True, instances=tuple(items))


FAMILIES = ("a100-40gb", "a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb", "thor-gb10b", "rtx-pro-5000-48gb")
DIVISIBLE = ("a100-40gb", "a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb")
"""Families with space for two GPU instances that can be split."""


@st.composite
def cases(draw: st.DrawFn, size: int = 1) -> tuple[Inventory, Desired]:
    """Draw a node of ``size`` GPUs and a desired state for it."""
    machines, wanted = [], []
    for n in range(size):
        family = draw(st.sampled_from(FAMILIES))
        pci = f"0000:{n + 7:02x}:00.0"
        machines.append(draw(gpus(family, pci)))
        wanted.append(draw(requests(family, pci)))
    return mig_nodes.node(*machines), Desired(gpus=tuple(wanted), name="case")
