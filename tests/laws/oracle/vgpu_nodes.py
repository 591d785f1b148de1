"""Inventories for the vGPU oracle, from products by file name and states by short type name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

import support.vgpufactory as factory
from aliquot.core.model import catalog
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory
from aliquot.core.model.plan import Plan
from laws.oracle import vgpu_raw

replace = msgspec.structs.replace


def gpu(product: str, mode: str, instances: tuple[tuple[str, int], ...] = (), numbers: tuple[int, ...] = ()) -> Gpu:
    """Build a GPU with its virtual functions on, and GPU instances (profile, start) with these ids."""
    made = factory.gpu(vgpu_raw.make_gpu(product)["name"], mig=mode == "mig", mixed=mode == "mixed", total=48)
    if not instances:
        return made
    family = catalog.family(made.family or "")
    there = []
    for (name, start), number in zip(instances, numbers, strict=True):
        profile = family.by_name[name]
        whole = profile.default_compute
        inner = ComputeInstance(0, whole.name, whole.id, str(whole.placements[0]))
        there.append(GpuInstance(number, name, profile.id, str(profile.placement(start)), compute_instances=(inner,)))
    return replace(made, instances=tuple(there))


def at(of: Gpu, state: vgpu_raw.State, held: Collection[int] = ()) -> Inventory:
    """Build the node with vGPUs on the first functions."""
    entries = [(factory.kind(of.product, placed.type), n, placed.placement) for n, placed in enumerate(state)]
    return factory.node(factory.having(of, *entries, held=tuple(held)))


def desired_state(of: Gpu, mode: str, wanted: Counter[str], own_instances: bool = True) -> Desired:
    """Build a desired state for vGPUs, with the GPU instances that they need, or with the existing ones."""
    made = factory.desired_state(of, dict(wanted), mixed=mode == "mixed" if mode != "mig" else None)
    if own_instances:
        return made
    return replace(made, gpus=tuple(replace(w, instances=None) for w in made.gpus))


def walk(
    product: str, mode: str, state: vgpu_raw.State, plan: Plan, instances: tuple[tuple[int, int], ...]
) -> Counter[str]:
    """Apply the plan's vGPUs as the driver would. The driver must accept every creation, at the planned place. Return
    the types at the end.
    """
    names = {t["name"]: short for short, t in vgpu_raw.make_gpu(product)["by_short"].items()}
    now: dict[str, vgpu_raw.PlacedVgpu] = {factory.address(n): placed for n, placed in enumerate(state)}
    for action in plan.actions:
        if isinstance(action, DestroyVgpu):
            assert now.pop(action.function).type == names[action.type]
        if isinstance(action, CreateVgpu):
            assert action.function not in now
            made = vgpu_raw.create(product, mode, tuple(now.values()), names[action.type], instances)
            assert made is not None, action
            if mode == "mixed":
                assert made.placement == action.placement
            now[action.function] = made
    return Counter(placed.type for placed in now.values())
