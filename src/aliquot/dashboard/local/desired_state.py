"""What an ask means for one node, as the wish that the planner takes. Pure."""

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
"""What the name of a place starts with where one more mdev could be made on a GPU itself; its address follows."""


def gpu(inventory: Inventory, pci: str) -> Gpu:
    """Raises NoSuchGpuError."""
    found = next((g for g in inventory.gpus if g.pci == pci), None)
    if found is None:
        known = tuple(f"GPU {g.index}  {g.pci}  {g.product}" for g in inventory.gpus)
        raise NoSuchGpuError(
            f"there is no GPU {pci} on {inventory.node} (any more)", details=known, next_step="aliquot show"
        )
    return found


def partition(request: PartitionGpu, inventory: Inventory) -> Desired:
    """Raises ConfigError with every fault of the text."""
    try:
        desired = adhoc([gpu(inventory, request.gpu).pci], [request.mig.strip()], inventory)
    except ConfigError as error:
        details = tuple(line.removeprefix("--mig ").removeprefix("--mig: ") for line in error.details)
        raise ConfigError(
            f"this cannot be read: {details[0]}" if details else error.brief,
            details=details[1:],
            next_step=error.next_step,
        ) from error
    errors = tuple(msgspec.structs.replace(f, message=f.message.removeprefix("--mig: ")) for f in desired.failures)
    return msgspec.structs.replace(desired, failures=errors)


def layout(request: SetLayout, inventory: Inventory) -> Desired:
    """Raises ConfigError for a profile that no table knows, or a count below zero."""
    if any(count < 0 for count in request.counts.values()):
        raise ConfigError("a count is 0 or more")
    parts = [f"{name}*{count}" for name, count in request.counts.items() if count]
    mig = (",".join(parts) or "empty") if request.enabled else "disabled"
    return partition(PartitionGpu(node=request.node, gpu=request.gpu, mig=mig), inventory)


def fit_instance(request: FitInstance, inventory: Inventory) -> Desired:
    """One more of a profile, beside as many of each as there are. Held instances are pinned, idle ones may move.

    Raises ConfigError for a profile that this GPU does not have.
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
    """Virtual functions on, or off with the vGPUs on them."""
    gone = None if on else ()
    gpus = [gpu(inventory, pci) for pci in dict.fromkeys(pcis)]
    return Desired(tuple(DesiredGpu(g.pci, mig=None, instances=None, vgpus=gone, functions=on) for g in gpus))


def vgpus(places: Sequence[str], name: str, inventory: Inventory) -> Desired:
    """The same type on each of these places, and every other vGPU as it is; no name destroys what is there.

    Raises ConfigError for a type that no table knows, NoSuchGpuError for a place that is not there.
    """
    places_by_gpu: dict[str, list[str]] = {}
    for place in dict.fromkeys(places):
        places_by_gpu.setdefault(owner(inventory, place).pci, []).append(place)
    return Desired(
        tuple(_desired_vgpus(inventory, gpu(inventory, pci), chosen, name) for pci, chosen in places_by_gpu.items())
    )


def owner(inventory: Inventory, place: str) -> Gpu:
    """The GPU that a place is on. Raises NoSuchGpuError."""
    address = place.removeprefix(SPARE).partition("#")[0]
    for each in inventory.gpus:
        addresses = each.virtual.addresses if each.virtual else ()
        if address == each.pci or address in addresses or any(place == v.uuid for v in each.vgpus):
            return each
    raise NoSuchGpuError(
        f"there is no place {place} for a vGPU on {inventory.node} (any more)", next_step="aliquot vgpu list"
    )


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
    """The name of the place that a vGPU is at: its function, its UUID where the GPU itself carries them all."""
    return vgpu.uuid if uses_physical_function(target) else vgpu.function


def _type(inventory: Inventory, target: Gpu, name: str) -> tuple[int, str]:
    from aliquot.core.config.select.vgpu_lookup import alternatives, find_type
    from aliquot.core.config.text.vgpu_request import parse_vgpu_request

    table = inventory.vgpu_table(target)
    if table is None:
        raise ConfigError(f"{target.product} has no vGPU types that are known", next_step="aliquot vgpu types")
    type_request = parse_vgpu_request(name, 1)
    found = find_type(table, type_request)
    if found is None or found.id is None:
        raise ConfigError(
            f"{target.product} has no vGPU type {name}{alternatives(type_request, table)}",
            next_step=f"aliquot vgpu types {target.pci}",
        )
    return found.id, found.name


def config(file: ConfigFile | None, name: str, inventory: Inventory) -> Desired:
    """Raises ConfigError for a name that the file does not have, or where there is no file."""
    if file is None:
        raise ConfigError("this page was started without a config file: give it one with --file")
    from aliquot.core.config.select.named_config import select

    return select(file, name, inventory)


def repair(recorded: Sequence[RecordedRequest], inventory: Inventory) -> Desired:
    """What was asked last, for the GPUs that are there. Raises ConfigError where nothing was."""
    if not recorded:
        raise ConfigError("nothing is recorded to go back to: nobody has asked for anything yet")
    desired, gone = replay(recorded, inventory)
    return msgspec.structs.replace(desired, notes=(*desired.notes, *(f.message for f in gone)))
