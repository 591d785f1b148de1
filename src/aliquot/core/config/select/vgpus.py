"""The resolution of requested vGPU types: vGPUs, mode, and the GPU instances behind MIG-backed ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.config.file import ConfigEntry
from aliquot.core.config.select.instances import resolve
from aliquot.core.config.select.vgpu_lookup import find_type
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.config.text.vgpu_request import VgpuRequest
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.desired import DesiredGpu, DesiredInstance, DesiredVgpu, RuleCode
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

ResolvedTypes = list[tuple[VgpuRequest, VgpuType]]


class VgpuProblem(msgspec.Struct, frozen=True):
    """The reason why a GPU cannot satisfy the request for a type.

    ``sentence`` ends before the GPU's name. ``mixed_size_types`` are the types to request in mixed-size mode, if that
    would help.
    """

    rule: RuleCode
    request: VgpuRequest
    sentence: str = ""
    mixed_size_types: str = ""


def resolve_types(table: VgpuTable, requests: Sequence[VgpuRequest]) -> tuple[ResolvedTypes, list[VgpuProblem]]:
    """Return the types that the requests name on a product, in their order, and the problems of the rest."""
    found: ResolvedTypes = []
    problems: list[VgpuProblem] = []
    for request in requests:
        each = find_type(table, request)
        if each is None:
            problems.append(VgpuProblem("WRONG_CARD", request))
        elif any(each.name == other.name for _, other in found):
            problems.append(VgpuProblem("TWICE", request))
        elif each.id is None:
            what = f"the driver's id of {each.name} is unknown, so it cannot be created on"
            problems.append(VgpuProblem("TYPE_WITHOUT_ID", request, what))
        else:
            found.append((request, each))
    return found, problems


def type_conflict(table: VgpuTable, found: ResolvedTypes, mixed_size: bool, advice: str) -> VgpuProblem | None:
    """Find types that cannot exist together on any GPU. ``mixed_size`` reports whether the GPU is in mixed-size mode,
    ``advice`` how to request that mode.
    """
    kinds = {each.mig_backed for _, each in found}
    if len(kinds) > 1:
        last = next(request for request, each in reversed(found) if each.mig_backed != found[0][1].mig_backed)
        what = f"{found[0][1].short} and {last.name} cannot be together: one needs MIG mode and the other needs it off"
        return VgpuProblem("MIG_TYPE", last, f"{what}, on")
    sizes = {each.fb_mib for _, each in found}
    if len(sizes) > 1 and not mixed_size and not found[0][1].mig_backed:
        last = next(request for request, each in found if each.fb_mib != found[0][1].fb_mib)
        names = " and ".join(each.short for _, each in found)
        possible = table.mixed_size and table.sriov
        how = advice if possible else "not available on this product"
        what = f"{names} are of different sizes, which needs mixed-size mode ({how}), on"
        wanted = ",".join(f"{each.short}:{request.count}" for request, each in found)
        return VgpuProblem("EQUAL_SIZE", last, what, wanted if possible else "")
    return None


def time_sliced(gpu: Gpu, table: VgpuTable, entry: ConfigEntry, found: ResolvedTypes) -> DesiredGpu:
    """Return the desired state with time-sliced vGPUs, without the GPU's address. Different sizes request mixed-size
    mode even if it is already on: after a reboot it is off.
    """
    mig = False if gpu.mig.capable else None
    mixed_size = True if len({each.fb_mib for _, each in found}) > 1 else entry.mixed_size
    return DesiredGpu(
        "",
        mig,
        (),
        vgpus=desired_vgpus(found, entry.parameters),
        functions=needs_functions(gpu, table),
        mixed_size=mixed_size,
        scheduler=entry.scheduler,
    )


def mig_backed(
    gpu: Gpu, table: VgpuTable, family: Family, entry: ConfigEntry, found: ResolvedTypes
) -> DesiredGpu | VgpuProblem:
    """Return the desired state with MIG-backed vGPUs and the GPU instances that they need."""
    needed: dict[tuple[int, int], tuple[Profile, int, int]] = {}
    for request, each in found:
        profile = profile_of(family, each)
        if profile is None:
            what = f"{each.short} needs a GPU instance {each.profile or each.profile_id}, which is not a profile of"
            return VgpuProblem("NO_INSTANCE", request, what)
        key = (profile.id, each.fb_mib)
        count = needed[key][1] if key in needed else 0
        needed[key] = (profile, count + request.count, max(1, each.per_instance))
    counts = [(profile, -(-count // per)) for profile, count, per in needed.values()]
    if entry.mixed_size and any(each.per_instance > 1 for _, each in found):
        from aliquot.core.planner.vgpu.mixed_instances import fewest_instances

        types = [(each, request.count) for request, each in found]
        fewest = fewest_instances(table, types, {name: p.id for name, p in family.by_name.items()})
        counts = [(family.by_id[profile], count) for profile, count in fewest.items()]
    requests = [InstanceRequest(f"id:{profile.id}", 0, 0, None, profile.id, count) for profile, count in counts]
    instances: tuple[DesiredInstance, ...] = resolve(family, requests)[0]
    return DesiredGpu(
        "",
        True,
        instances,
        vgpus=desired_vgpus(found, entry.parameters),
        functions=needs_functions(gpu, table),
        mixed_size=entry.mixed_size,
        scheduler=entry.scheduler,
    )


def profile_of(family: Family, each: VgpuType) -> Profile | None:
    """Return the GPU instance profile that a MIG-backed type needs, by its id, else by its name."""
    if each.profile_id is not None and each.profile_id in family.by_id:
        return family.by_id[each.profile_id]
    return family.by_name.get(each.profile)


def desired_vgpus(found: ResolvedTypes, parameters: str | None) -> tuple[DesiredVgpu, ...]:
    """Return one request for each vGPU, in the order of the requests."""
    return tuple(
        DesiredVgpu(each.id, each.name, parameters=parameters)
        for request, each in found
        if each.id is not None
        for _ in range(request.count)
    )


def needs_functions(gpu: Gpu, table: VgpuTable) -> bool | None:
    """Report whether vGPUs of this GPU need virtual functions; None for GPUs without any (mdevs of the GPU itself)."""
    return True if table.sriov or (gpu.virtual is not None and gpu.virtual.total > 0) else None
