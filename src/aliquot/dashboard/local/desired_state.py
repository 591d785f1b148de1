"""What an ask means for one node, as the wish that the planner takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.config.boot_record import Kept, replay
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.desired import Desired, GpuWish, InstanceWish, VgpuWish
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.planner.vgpu.function_assignment import on_the_gpu_itself
from aliquot.dashboard.change_requests import Cut, MakeRoom, SetLayout
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


def cut(ask: Cut, inventory: Inventory) -> Desired:
    """Raises ConfigError with every fault of the text."""
    try:
        desired = adhoc([gpu(inventory, ask.gpu).pci], [ask.mig.strip()], inventory)
    except ConfigError as error:
        told = tuple(line.removeprefix("--mig ").removeprefix("--mig: ") for line in error.details)
        raise ConfigError(
            f"this cannot be read: {told[0]}" if told else error.brief, details=told[1:], next_step=error.next_step
        ) from error
    faults = tuple(msgspec.structs.replace(f, message=f.message.removeprefix("--mig: ")) for f in desired.faults)
    return msgspec.structs.replace(desired, faults=faults)


def layout(ask: SetLayout, inventory: Inventory) -> Desired:
    """Raises ConfigError for a profile that no table knows, or a count below zero."""
    if any(count < 0 for count in ask.counts.values()):
        raise ConfigError("a count is 0 or more")
    parts = [f"{name}*{count}" for name, count in ask.counts.items() if count]
    mig = (",".join(parts) or "empty") if ask.enabled else "disabled"
    return cut(Cut(node=ask.node, gpu=ask.gpu, mig=mig), inventory)


def room(ask: MakeRoom, inventory: Inventory) -> Desired:
    """One more of a profile, beside as many of each as there are. Held instances are pinned, idle ones may move.

    Raises ConfigError for a profile that this GPU does not have.
    """
    here = gpu(inventory, ask.gpu)
    if not here.mig.capable or here.lost:
        return cut(Cut(node=ask.node, gpu=ask.gpu, mig=ask.profile), inventory)
    family = inventory.family(here)
    profile = family.by_name.get(ask.profile)
    if profile is None:
        names = ", ".join(p.name for p in family.profiles)
        raise ConfigError(
            f"{here.product} has no profile {ask.profile!r}",
            details=(f"it has: {names}",),
            next_step=f"aliquot profiles {here.pci}",
        )
    new = InstanceWish(profile.id, profile.name, (profile.default_compute.id,))
    there = tuple(_stays(here, i.id) for i in here.instances) if here.mig.enabled else ()
    wish = GpuWish(here.pci, mig=True, instances=(*there, new), source="room")
    return Desired((wish,), name=f"one more {profile.name}")


def _stays(here: Gpu, number: int) -> InstanceWish:
    instance = here.instance(number)
    assert instance is not None
    compute = tuple(c.profile_id for c in instance.compute_instances)
    if not instance.held:
        return InstanceWish(instance.profile_id, instance.profile, compute)
    starts = tuple(c.place.start for c in instance.compute_instances)
    return InstanceWish(instance.profile_id, instance.profile, compute, instance.place.start, starts)


def functions(pcis: Sequence[str], on: bool, inventory: Inventory) -> Desired:
    """Virtual functions on, or off with the vGPUs on them."""
    gone = None if on else ()
    gpus = [gpu(inventory, pci) for pci in dict.fromkeys(pcis)]
    return Desired(tuple(GpuWish(g.pci, mig=None, instances=None, vgpus=gone, functions=on) for g in gpus))


def vgpus(places: Sequence[str], name: str, inventory: Inventory) -> Desired:
    """The same type on each of these places, and every other vGPU as it is; no name destroys what is there.

    Raises ConfigError for a type that no table knows, NoSuchGpuError for a place that is not there.
    """
    wished: dict[str, list[str]] = {}
    for place in dict.fromkeys(places):
        wished.setdefault(owner(inventory, place).pci, []).append(place)
    return Desired(tuple(_vgpus(inventory, gpu(inventory, pci), here, name) for pci, here in wished.items()))


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


def _vgpus(inventory: Inventory, here: Gpu, places: Collection[str], name: str) -> GpuWish:
    stay = [VgpuWish(v.type_id, v.type, v.function, v.uuid) for v in here.vgpus if place_of(here, v) not in places]
    made: list[VgpuWish] = []
    if name:
        type_id, full = _type(inventory, here, name)
        made = [VgpuWish(type_id, full, "" if on_the_gpu_itself(here) else place) for place in sorted(places)]
    return GpuWish(here.pci, mig=None, instances=None, vgpus=(*stay, *made))


def place_of(here: Gpu, vgpu: Vgpu) -> str:
    """The name of the place that a vGPU is at: its function, its UUID where the GPU itself carries them all."""
    return vgpu.uuid if on_the_gpu_itself(here) else vgpu.function


def _type(inventory: Inventory, here: Gpu, name: str) -> tuple[int, str]:
    from aliquot.core.config.select.vgpu_lookup import alternatives, find
    from aliquot.core.config.text.vgpu_request import parse_type

    table = inventory.vgpu_table(here)
    if table is None:
        raise ConfigError(f"{here.product} has no vGPU types that are known", next_step="aliquot vgpu types")
    wish = parse_type(name, 1)
    found = find(table, wish)
    if found is None or found.id is None:
        raise ConfigError(
            f"{here.product} has no vGPU type {name}{alternatives(wish, table)}",
            next_step=f"aliquot vgpu types {here.pci}",
        )
    return found.id, found.name


def config(file: ConfigFile, name: str, inventory: Inventory) -> Desired:
    """Raises ConfigError for a name that the file does not have."""
    from aliquot.core.config.select.named_config import select

    return select(file, name, inventory)


def repair(kept: Sequence[Kept], inventory: Inventory) -> Desired:
    """What was asked last, for the GPUs that are there."""
    desired, gone = replay(kept, inventory)
    return msgspec.structs.replace(desired, notes=(*desired.notes, *(f.message for f in gone)))
