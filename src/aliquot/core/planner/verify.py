"""Inventory against Desired: every difference, as a sentence. An empty answer is the only success."""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import Desired, GpuWish, InstanceWish
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.plan import Drift
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.concern import concerns_virtual_machines
from aliquot.core.planner.placement_table import board


def verify(inventory: Inventory, desired: Desired) -> tuple[Drift, ...]:
    """The differences on the GPUs that the wish names, in PCI order."""
    out = [Drift(f.pci, "unresolved", f.message) for f in desired.faults]
    for wish in sorted(desired.gpus, key=lambda w: w.pci):
        gpu = next((g for g in inventory.gpus if g.pci == wish.pci), None)
        if gpu is None:
            out.append(Drift(wish.pci, "missing-gpu", f"GPU {wish.pci} is not there"))
        elif gpu.lost:
            out.append(Drift(wish.pci, "lost-gpu", f"GPU {wish.pci} has fallen off the bus"))
        else:
            out += _shared(gpu, wish, inventory.family(gpu) if gpu.family and gpu.mig.capable else None)
    return tuple(out)


def _shared(gpu: Gpu, wish: GpuWish, family: Family | None) -> list[Drift]:
    """The differences on one GPU. Where nothing is shared with virtual machines, their half is not loaded."""
    if not concerns_virtual_machines(gpu, wish):
        return _gpu(gpu, wish, family)
    from aliquot.core.planner.vgpu import drift

    out = drift.handed_out(gpu, wish)
    return _gpu(gpu, wish, family) + drift.shares(gpu, wish) if out is None else out


def _gpu(gpu: Gpu, wish: GpuWish, family: Family | None) -> list[Drift]:
    if wish.mig is not None and wish.mig != gpu.mig.enabled:
        want = "enabled" if wish.mig else "disabled"
        wait = f" ({gpu.mig.pending} is pending)" if gpu.mig.pending != gpu.mig.current else ""
        text = f"GPU {gpu.pci}: MIG mode is {gpu.mig.current}{wait}, it should be {want}"
        return [Drift(gpu.pci, "mode", text, want, gpu.mig.current)]
    out: list[Drift] = []
    if gpu.mig.pending != gpu.mig.current and wish.mig is not None:
        text = f"GPU {gpu.pci}: MIG mode will become {gpu.mig.pending} at the next reset, nobody asked for it"
        out.append(Drift(gpu.pci, "pending-mode", text, gpu.mig.current, gpu.mig.pending))
    if wish.instances is None or not gpu.mig.enabled:
        return out
    ways = groupings(board(family), wish.instances) if family else [wish.instances]
    return out + min((_instances(gpu, way, family) for way in ways), key=len)


def _instances(gpu: Gpu, wishes: tuple[InstanceWish, ...], family: Family | None) -> list[Drift]:
    left = list(gpu.instances)
    missing: list[InstanceWish] = []
    for wish in sorted(wishes, key=lambda w: (w.start is None, w.compute_starts is None)):
        found = next((i for i in left if _meets(i, wish)), None)
        if found is None:
            missing.append(wish)
        else:
            left.remove(found)
    if not missing and not left:
        return []
    want = geometry_text(geometry(w.name for w in wishes))
    have = geometry_text(geometry(i.profile for i in gpu.instances))
    out = []
    for text, n in Counter(_wish_text(w, family) for w in missing).items():
        out.append(Drift(gpu.pci, "missing", f"GPU {gpu.pci}: {n} x {text} missing", want, have))
    for instance in left:
        inner = ", ".join(c.profile for c in instance.compute_instances) or "no compute instance"
        text = (
            f"GPU {gpu.pci}: {instance.profile} at {instance.placement} (id {instance.id}, {inner}) should not be there"
        )
        out.append(Drift(gpu.pci, "extra", text, want, have))
    return out


def _meets(instance: GpuInstance, wish: InstanceWish) -> bool:
    if instance.profile_id != wish.profile_id or wish.start not in (None, instance.place.start):
        return False
    if wish.compute_starts is not None:
        have = sorted((c.profile_id, c.place.start) for c in instance.compute_instances)
        return have == sorted(zip(wish.compute, wish.compute_starts, strict=True))
    return sorted(c.profile_id for c in instance.compute_instances) == sorted(wish.compute)


def _wish_text(wish: InstanceWish, family: Family | None) -> str:
    profile = family.by_id.get(wish.profile_id) if family else None
    name = profile.name if profile else wish.name
    inner = ""
    if profile and wish.compute != (profile.default_compute.id,):
        found = [profile.compute_profile(i) for i in wish.compute]
        inner = f" with {' + '.join(c.name for c in found if c) or 'no compute instance'}"
    return name + (f" at memory slice {wish.start}" if wish.start is not None else "") + inner
