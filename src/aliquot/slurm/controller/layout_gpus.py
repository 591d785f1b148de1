"""Conversion of a node's GPUs into input of the layout search, and of its result into a config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.planner.node_layout import WHOLE_GPU, LayoutGpu, PlacedGeometry
from aliquot.slurm.controller.settings import WHOLE as WHOLE_NAME
from aliquot.slurm.controller.settings import Rules
from aliquot.slurm.gpus.gres_types import TypeStyle, slice_type, whole_type


def searchable_gpus(
    inventory: Inventory, gpus: tuple[str, ...], rules: Rules, style: TypeStyle
) -> tuple[LayoutGpu, ...]:
    """Return the GPUs that can be repartitioned.

    ``gpus`` are the PCI addresses that the node offers; empty means all. Omits GPUs without MIG, GPUs that are used by
    VMs, and GPUs that have fallen off the bus.
    """
    found = []
    for gpu in inventory.gpus:
        if gpu.lost or gpu.passthrough or gpu.vgpus or not gpu.mig.capable or (gpus and gpu.pci not in gpus):
            continue
        try:
            family = inventory.family(gpu)
        except KeyError:
            continue
        found.append(_searchable_gpu(gpu, family, rules, style))
    return tuple(found)


def _searchable_gpu(gpu: Gpu, family: Family, rules: Rules, style: TypeStyle) -> LayoutGpu:
    kinds = {slice_type(gpu, p.name, style): p.id for p in family.profiles}
    if not gpu.holders:
        kinds[whole_type(gpu, style)] = WHOLE_GPU
    mode_waits = gpu.mig.current != gpu.mig.pending
    placed = tuple(sorted((i.profile_id, i.place.start) for i in gpu.instances)) if gpu.mig.enabled else None
    return LayoutGpu(
        pci=gpu.pci,
        family=family,
        kinds=kinds,
        placed=placed,
        fixed=frozenset((i.profile_id, i.place.start) for i in gpu.instances if i.held or not _plain(i, family)),
        locked=rules.untouched or bool(gpu.holders) or mode_waits,
        mode_changeable=rules.modes,
    )


def _plain(instance: GpuInstance, family: Family) -> bool:
    """Report whether one default compute instance fills an instance. Others were created manually, and stay."""
    profile = family.by_id.get(instance.profile_id)
    inside = instance.compute_instances
    return profile is not None and len(inside) == 1 and inside[0].profile_id == profile.default_compute.id


def profiles_by_type(inventory: Inventory, style: TypeStyle) -> dict[str, str]:
    """Return the profile of each type that the node's GPUs support; ``whole`` for whole GPUs."""
    out: dict[str, str] = {}
    for gpu in inventory.gpus:
        if not gpu.mig.capable:
            continue
        try:
            family = inventory.family(gpu)
        except KeyError:
            continue
        out |= {slice_type(gpu, p.name, style): p.name for p in family.profiles}
        out[whole_type(gpu, style)] = WHOLE_NAME
    return out


def makeable(family: Family, rules: Rules) -> set[str]:
    """Return the allowed profiles: those of the rules, else every plain one."""
    if rules.profiles is not None:
        return set(rules.profiles)
    return {p.name for p in family.plain_profiles} | ({WHOLE_NAME} if rules.modes else set())


def geometry(gpu: LayoutGpu, placement: PlacedGeometry) -> Counter[str]:
    """Count the instances of a GPU by profile."""
    if placement is None:
        return Counter({WHOLE_NAME: 1})
    return Counter(gpu.family.by_id[p].name for p, _ in placement if p in gpu.family.by_id)


def desired_config(chosen: Mapping[str, PlacedGeometry], inventory: Inventory) -> dict[str, object]:
    """Return the native config of the chosen layouts, with the placement of every instance.

    Existing instances that stay keep their compute instances.
    """
    entries: list[dict[str, object]] = []
    for pci, placement in sorted(chosen.items()):
        gpu = inventory.gpu(pci)
        mig: object = "disabled" if placement is None else [_entry(gpu, inventory, place) for place in placement]
        entries.append({"gpus": {"pci": [pci]}, "mig": mig})
    return {"version": "aliquot/v1", "configs": {"on-demand": entries}}


def _entry(gpu: Gpu, inventory: Inventory, place: tuple[int, int]) -> object:
    family = inventory.family(gpu)
    instance = next((i for i in gpu.instances if (i.profile_id, i.place.start) == place), None)
    profile = family.by_id.get(place[0])
    name = profile.name if profile else f"id:{place[0]}"
    if instance is None or _plain(instance, family):
        return f"{name}@{place[1]}"
    inside = sorted(instance.compute_instances, key=lambda c: c.place.start)
    return {"profile": name, "placement": place[1], "compute": [f"{c.profile}@{c.place.start}" for c in inside]}
