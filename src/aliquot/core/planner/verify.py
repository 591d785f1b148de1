"""Verification of the inventory against the desired state: every difference, as a sentence.

Only an empty result means success.
"""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift, DriftInstance
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import compiled_table


def verify(inventory: Inventory, desired: Desired) -> tuple[Drift, ...]:
    """Return the differences on the GPUs that the desired state names, in PCI order."""
    out = [Drift(f.pci, "unresolved", f.message) for f in desired.failures]
    for desired_gpu in sorted(desired.gpus, key=lambda w: w.pci):
        gpu = next((g for g in inventory.gpus if g.pci == desired_gpu.pci), None)
        if gpu is None:
            out.append(Drift(desired_gpu.pci, "missing-gpu", f"GPU {desired_gpu.pci} is missing"))
        elif gpu.lost:
            out.append(Drift(desired_gpu.pci, "lost-gpu", f"GPU {desired_gpu.pci} has fallen off the bus"))
        else:
            out += _gpu_drift(gpu, desired_gpu, inventory.family(gpu) if gpu.family and gpu.mig.capable else None)
    return tuple(out)


def _gpu_drift(gpu: Gpu, desired_gpu: DesiredGpu, family: Family | None) -> list[Drift]:
    """Return the differences on one GPU. The vGPU code is loaded only if the GPU or the request involves VMs."""
    if not (gpu.involves_vms or desired_gpu.involves_vms):
        return _mig_drift(gpu, desired_gpu, family)
    from aliquot.core.planner.vgpu import drift

    out = drift.passthrough_drift(gpu, desired_gpu)
    return _mig_drift(gpu, desired_gpu, family) + drift.sharing_drift(gpu, desired_gpu) if out is None else out


def _mig_drift(gpu: Gpu, desired_gpu: DesiredGpu, family: Family | None) -> list[Drift]:
    if desired_gpu.mig is not None and desired_gpu.mig != gpu.mig.enabled:
        want = "enabled" if desired_gpu.mig else "disabled"
        wait = f" ({gpu.mig.pending} is pending)" if gpu.mig.pending != gpu.mig.current else ""
        text = f"MIG mode is {gpu.mig.current}{wait}, but should be {want}"
        return [Drift.on(gpu.pci, "mode", text, want, gpu.mig.current)]
    out: list[Drift] = []
    if gpu.mig.pending != gpu.mig.current and desired_gpu.mig is not None:
        text = f"MIG mode will become {gpu.mig.pending} at the next reset, which was not requested"
        out.append(Drift.on(gpu.pci, "pending-mode", text, gpu.mig.current, gpu.mig.pending))
    if desired_gpu.instances is None or not gpu.mig.enabled:
        return out
    options = groupings(compiled_table(family), desired_gpu.instances) if family else [desired_gpu.instances]
    return out + min((_instance_drift(gpu, option, family) for option in options), key=len)


def _instance_drift(gpu: Gpu, requests: tuple[DesiredInstance, ...], family: Family | None) -> list[Drift]:
    left = list(gpu.instances)
    missing: list[DesiredInstance] = []
    for request in sorted(requests, key=lambda w: (w.start is None, w.compute_starts is None)):
        found = next((i for i in left if meets(i, request)), None)
        if found is None:
            missing.append(request)
        else:
            left.remove(found)
    if not missing and not left:
        return []
    want = geometry_text(geometry(w.name for w in requests))
    have = geometry_text(geometry(i.profile for i in gpu.instances))
    out = []
    counted = Counter((_request_text(w, family), _missing_instance(w, family)) for w in missing)
    for (text, wanted), n in counted.items():
        out.append(Drift.on(gpu.pci, "missing", f"{n} x {text} missing", want, have, wanted))
    for instance in left:
        compute = tuple(c.profile for c in instance.compute_instances)
        extra = DriftInstance(instance.profile, instance.placement, instance.id, compute)
        text = f"{instance.profile} at {instance.placement} ({extra.about}) should not be there"
        out.append(Drift.on(gpu.pci, "extra", text, want, have, extra))
    return out


def meets(instance: GpuInstance, request: DesiredInstance) -> bool:
    """Report whether a GPU instance has the requested profile, placement and compute instances."""
    if instance.profile_id != request.profile_id or request.start not in (None, instance.place.start):
        return False
    if request.compute_starts is not None:
        have = sorted((c.profile_id, c.place.start) for c in instance.compute_instances)
        return have == sorted(zip(request.compute, request.compute_starts, strict=True))
    return sorted(c.profile_id for c in instance.compute_instances) == sorted(request.compute)


def _missing_instance(request: DesiredInstance, family: Family | None) -> DriftInstance:
    profile = family.by_id.get(request.profile_id) if family else None
    if profile is None:
        return DriftInstance(request.name)
    return DriftInstance(profile.name, "" if request.start is None else str(Placement(request.start, profile.size)))


def _request_text(request: DesiredInstance, family: Family | None) -> str:
    profile = family.by_id.get(request.profile_id) if family else None
    name = profile.name if profile else request.name
    inner = ""
    if profile and request.compute != (profile.default_compute.id,):
        found = [profile.compute_profile(i) for i in request.compute]
        inner = f" with {' + '.join(c.name for c in found if c) or 'no compute instance'}"
    return name + (f" at memory slice {request.start}" if request.start is not None else "") + inner
