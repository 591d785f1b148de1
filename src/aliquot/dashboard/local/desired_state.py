"""The desired state for the planner, from a change request for one node. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.config.boot_record import RecordedRequest, replay
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.planner.vgpu.function_assignment import uses_physical_function
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu, SetLayout
from aliquot.errors import ConfigError, NoSuchGpuError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile

SPARE = "new-"
"""Prefix of a place where one more mdev can be created on a physical function. The PCI address follows."""


def gpu(inventory: Inventory, pci: str) -> Gpu:
    """Return the GPU at a PCI address. Raises NoSuchGpuError."""
    found = next((g for g in inventory.gpus if g.pci == pci), None)
    if found is None:
        known = tuple(f"GPU {g.index}  {g.pci}  {g.product}" for g in inventory.gpus)
        raise NoSuchGpuError(f"GPU {pci} not found on {inventory.node}", details=known, next_step="aliquot show")
    return found


def partition(request: PartitionGpu, inventory: Inventory) -> Desired:
    """Parse the geometry of a request. Raises ConfigError with all errors of the text."""
    try:
        return adhoc([gpu(inventory, request.gpu).pci], [request.mig.strip()], inventory, source="")
    except ConfigError as error:
        raise ConfigError(
            f"invalid geometry: {error.details[0]}" if error.details else error.brief,
            details=error.details[1:],
            next_step=error.next_step,
        ) from error


def layout(request: SetLayout, inventory: Inventory) -> Desired:
    """Build the desired geometry from counts. Raises ConfigError for an unknown profile or a negative count."""
    if any(count < 0 for count in request.counts.values()):
        raise ConfigError("a count must be 0 or more")
    parts = [f"{name}*{count}" for name, count in request.counts.items() if count]
    mig = (",".join(parts) or "empty") if request.enabled else "disabled"
    return partition(PartitionGpu(node=request.node, gpu=request.gpu, mig=mig), inventory)


def fit_instance(request: FitInstance, inventory: Inventory) -> Desired:
    """Request the current instances and one more of a profile. Held instances are pinned, idle ones may move.

    Raises ConfigError if this GPU does not have the profile.
    """
    target = gpu(inventory, request.gpu)
    if not target.mig.capable or target.lost:
        return partition(PartitionGpu(node=request.node, gpu=request.gpu, mig=request.profile), inventory)
    family = inventory.family(target)
    profile = family.by_name.get(request.profile)
    if profile is None:
        names = ", ".join(p.name for p in family.profiles)
        raise ConfigError(
            f"{target.product} has no profile {request.profile!r}",
            details=(f"it has: {names}",),
            next_step=f"aliquot profiles {target.pci}",
        )
    new = DesiredInstance(profile.id, profile.name, (profile.default_compute.id,))
    existing = tuple(_keep_instance(target, i.id) for i in target.instances) if target.mig.enabled else ()
    desired_gpu = DesiredGpu(target.pci, mig=True, instances=(*existing, new), source="room")
    return Desired((desired_gpu,), name=f"one more {profile.name}")


def _keep_instance(target: Gpu, number: int) -> DesiredInstance:
    instance = target.instance(number)
    assert instance is not None
    compute = tuple(c.profile_id for c in instance.compute_instances)
    if not instance.held:
        return DesiredInstance(instance.profile_id, instance.profile, compute)
    starts = tuple(c.place.start for c in instance.compute_instances)
    return DesiredInstance(instance.profile_id, instance.profile, compute, instance.place.start, starts)


def functions(pcis: Sequence[str], on: bool, inventory: Inventory) -> Desired:
    """Request virtual functions to be enabled, or disabled together with their vGPUs."""
    gone = None if on else ()
    gpus = [gpu(inventory, pci) for pci in dict.fromkeys(pcis)]
    return Desired(tuple(DesiredGpu(g.pci, mig=None, instances=None, vgpus=gone, functions=on) for g in gpus))


def vgpus(places: Sequence[str], name: str, inventory: Inventory) -> Desired:
    """Request the same type at each of these places, and keep every other vGPU. An empty name destroys the vGPUs.

    Raises ConfigError for an unknown type, NoSuchGpuError for a place that does not exist.
    """
    places_by_gpu: dict[str, list[str]] = {}
    for place in dict.fromkeys(places):
        places_by_gpu.setdefault(owner(inventory, place).pci, []).append(place)
    return Desired(
        tuple(_desired_vgpus(inventory, gpu(inventory, pci), chosen, name) for pci, chosen in places_by_gpu.items())
    )


def owner(inventory: Inventory, place: str) -> Gpu:
    """Return the GPU of a place. Raises NoSuchGpuError."""
    address = place.removeprefix(SPARE).partition("#")[0]
    for each in inventory.gpus:
        addresses = each.virtual.addresses if each.virtual else ()
        if address == each.pci or address in addresses or any(place == v.uuid for v in each.vgpus):
            return each
    raise NoSuchGpuError(f"place {place} for a vGPU not found on {inventory.node}", next_step="aliquot vgpu list")


def _desired_vgpus(inventory: Inventory, target: Gpu, places: Collection[str], name: str) -> DesiredGpu:
    stay = [
        DesiredVgpu(v.type_id, v.type, v.function, v.uuid) for v in target.vgpus if place_of(target, v) not in places
    ]
    made: list[DesiredVgpu] = []
    if name:
        type_id, full = _type(inventory, target, name)
        made = [DesiredVgpu(type_id, full, "" if uses_physical_function(target) else place) for place in sorted(places)]
    return DesiredGpu(target.pci, mig=None, instances=None, vgpus=(*stay, *made))


def place_of(target: Gpu, vgpu: Vgpu) -> str:
    """Return the place of a vGPU: its virtual function, or its UUID if all are on the physical function."""
    return vgpu.uuid if uses_physical_function(target) else vgpu.function


def _type(inventory: Inventory, target: Gpu, name: str) -> tuple[int, str]:
    from aliquot.core.config.select.vgpu_lookup import alternatives, find_type
    from aliquot.core.config.text.vgpu_request import parse_vgpu_request

    table = inventory.vgpu_table(target)
    if table is None:
        raise ConfigError(f"no vGPU types of {target.product} are known", next_step="aliquot vgpu types")
    type_request = parse_vgpu_request(name, 1)
    found = find_type(table, type_request)
    if found is None or found.id is None:
        raise ConfigError(
            f"{target.product} has no vGPU type {name}{alternatives(type_request, table)}",
            next_step=f"aliquot vgpu types {target.pci}",
        )
    return found.id, found.name


def config(file: ConfigFile | None, name: str, inventory: Inventory) -> Desired:
    """Select a named config. Raises ConfigError if the file is missing or does not have it."""
    if file is None:
        raise ConfigError("the dashboard was started without a config file: restart it with --file FILE")
    from aliquot.core.config.select.named_config import select

    return select(file, name, inventory)


def repair(recorded: Sequence[RecordedRequest], inventory: Inventory) -> Desired:
    """Return the last requested state of the present GPUs. Raises ConfigError if none is recorded."""
    if not recorded:
        raise ConfigError("no requested state is recorded for this node: apply a change first")
    desired, gone = replay(recorded, inventory)
    return msgspec.structs.replace(desired, notes=(*desired.notes, *(f.message for f in gone)))
