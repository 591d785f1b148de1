"""What each action around vGPUs means: the part of ``step`` that knows virtual functions, vGPUs and passthrough."""

from __future__ import annotations

from typing import assert_never

import msgspec

from aliquot.core.model.actions import CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory, Mig, Vgpu, Virtual, VirtualFunction
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.mig_backed_search import inside
from aliquot.core.planner.vgpu.placement_policies import EqualRoom, MigRoom, MixedRoom, Room, Seat, Spot

replace = msgspec.structs.replace
VgpuAction = SetFunctions | SetMixedSize | CreateVgpu | DestroyVgpu | SetPassthrough


class StepRefused(Exception):
    """The action is not possible in this state; the text names the rule."""


def functions(gpu: Gpu) -> tuple[VirtualFunction, ...]:
    """The virtual functions that exist."""
    return gpu.virtual.functions if gpu.virtual else ()


def act(inventory: Inventory, gpu: Gpu, action: VgpuAction) -> Gpu:
    """The GPU after the action. Raises StepRefused."""
    if gpu.virtual is None:
        raise StepRefused("NO_VGPU_DRIVER: the kernel was not asked about this GPU")
    match action:
        case SetFunctions():
            return _set_functions(gpu, gpu.virtual, action.count)
        case SetMixedSize():
            table = inventory.vgpu_table(gpu)
            if not gpu.virtual.enabled or gpu.mig.enabled or table is None or not table.mixed_size:
                raise StepRefused("MIXED_SIZE: no such mode here")
            if gpu.vgpus:
                raise StepRefused("IN_USE: vGPUs exist")
            return replace(gpu, virtual=replace(gpu.virtual, mixed=action.on))
        case CreateVgpu():
            return _create(inventory, gpu, action)
        case DestroyVgpu():
            return _destroy(gpu, action)
        case SetPassthrough():
            if action.function:
                return _bind(gpu, gpu.virtual, action.function, action.on)
            return _hand_out(inventory, gpu, gpu.virtual) if action.on else _take_back(inventory, gpu, gpu.virtual)
    assert_never(action)


def _set_functions(gpu: Gpu, virtual: Virtual, count: int) -> Gpu:
    """Either way the driver forgets GPU instances, vGPUs and mixed-size mode. The world shows with the functions."""
    if gpu.holders or gpu.vgpus or any(i.held for i in gpu.instances) or any(f.holders for f in virtual.functions):
        raise StepRefused("FUNCTIONS_IN_USE: something is on the GPU")
    if count and virtual.functions:
        raise StepRefused("FUNCTIONS_IN_USE: they are on, and their number changes only by way of none")
    if not 0 <= count <= virtual.total:
        raise StepRefused(f"NO_FUNCTION: the GPU has {virtual.total}")
    made = tuple(VirtualFunction(pci, n, "nvidia") for n, pci in enumerate(virtual.addresses[:count]))
    world = (virtual.world or "sriov-mdev") if count else ""
    return replace(gpu, instances=(), virtual=replace(virtual, functions=made, world=world, mixed=False))


def _create(inventory: Inventory, gpu: Gpu, action: CreateVgpu) -> Gpu:
    assert gpu.virtual is not None
    table = inventory.vgpu_table(gpu)
    each = table.by_id.get(action.type_id) if table else None
    if table is None or each is None:
        raise StepRefused("UNKNOWN_TYPE: no such vGPU type")
    carrier = next((f for f in functions(gpu) if f.pci == action.function), None)
    if gpu.virtual.total and (carrier is None or carrier.driver == VFIO or carrier.holders):
        raise StepRefused("NO_FUNCTION: no virtual function that can carry a vGPU")
    if not gpu.virtual.total and action.function != gpu.pci:
        raise StepRefused("NO_FUNCTION: the GPU itself carries vGPUs here")
    if gpu.virtual.total and any(v.function == action.function for v in gpu.vgpus):
        raise StepRefused("IN_USE: the function carries a vGPU")
    if any(v.uuid == action.uuid for v in gpu.vgpus):
        raise StepRefused("IN_USE: a vGPU has that UUID")
    spot = _spot(inventory, gpu, table, each)
    made = Vgpu(
        function=action.function,
        type_id=action.type_id,
        type=each.name,
        uuid=action.uuid,
        gpu_instance=spot if each.mig_backed else None,
        placement=spot if gpu.virtual.mixed else None,
        claim=f"claim-{action.uuid}",
    )
    instances = gpu.instances
    if made.gpu_instance is not None:
        instances = tuple(_with_holder(i, made) if i.id == made.gpu_instance else i for i in instances)
    order = {pci: n for n, pci in enumerate(gpu.virtual.addresses)}
    vgpus = tuple(sorted((*gpu.vgpus, made), key=lambda v: (order.get(v.function, 0), v.uuid)))
    return replace(gpu, vgpus=vgpus, instances=instances)


def _spot(inventory: Inventory, gpu: Gpu, table: VgpuTable, each: VgpuType) -> Spot:
    """Where the driver puts one more vGPU."""
    assert gpu.virtual is not None
    if each.mig_backed != gpu.mig.enabled:
        raise StepRefused("MIG_TYPE: the type is for another MIG mode")
    room: Room
    spots: list[Spot] = [v.placement for v in gpu.vgpus]
    if gpu.mig.enabled:
        family = inventory.family(gpu)
        where = inside(gpu, table, family)
        spots = [where.get(n) for n in range(len(gpu.vgpus))]
        profiles = {name: p.id for name, p in family.by_name.items()}
        room = MigRoom(table, [(i.id, i.profile_id) for i in gpu.instances], profiles)
    else:
        room = MixedRoom(table) if gpu.virtual.mixed else EqualRoom()
    seats = [Seat(table.by_id[v.type_id], s) for v, s in zip(gpu.vgpus, spots, strict=True) if v.type_id in table.by_id]
    found = room.put(room.start(seats), each)
    if found is None:
        raise StepRefused("NO_INSTANCE: no GPU instance takes it" if gpu.mig.enabled else "MAX_VGPUS: no room")
    return found[1]


def _with_holder(instance: GpuInstance, vgpu: Vgpu) -> GpuInstance:
    return replace(instance, held=True, holders=(*instance.holders, Holder("vgpu", vgpu.function, vgpu.type)))


def _destroy(gpu: Gpu, action: DestroyVgpu) -> Gpu:
    asked = action.function, action.type_id, action.uuid, action.claim
    found = [v for v in gpu.vgpus if (v.function, v.type_id, v.uuid, v.claim) == asked]
    if not found:
        raise StepRefused("NOT_FOUND: no such vGPU (or another one by now)")
    if found[0].holders:
        raise StepRefused("IN_USE: a virtual machine has the vGPU")

    def without(instance: GpuInstance) -> GpuInstance:
        rest = tuple(h for h in instance.holders if (h.kind, h.id) != ("vgpu", action.function))
        held = bool(rest) or (instance.held and not instance.holders)
        return replace(instance, holders=rest, held=held)

    instances = tuple(without(i) for i in gpu.instances)
    return replace(gpu, vgpus=tuple(v for v in gpu.vgpus if v is not found[0]), instances=instances)


def _bind(gpu: Gpu, virtual: Virtual, pci: str, on: bool) -> Gpu:
    found = next((f for f in virtual.functions if f.pci == pci), None)
    if found is None:
        raise StepRefused("NO_FUNCTION: no such virtual function")
    if on and virtual.world == "vendor-vfio":
        raise StepRefused("NO_FUNCTION: vfio-pci does not take virtual functions of vendor-specific VFIO")
    if found.holders or any(v.function == pci for v in gpu.vgpus):
        raise StepRefused("FUNCTIONS_IN_USE: the virtual function is in use")
    after = replace(found, driver=VFIO if on else "nvidia")
    made = tuple(after if f.pci == pci else f for f in virtual.functions)
    return replace(gpu, virtual=replace(virtual, functions=made))


def _hand_out(inventory: Inventory, gpu: Gpu, virtual: Virtual) -> Gpu:
    if inventory.host is None or not inventory.host.iommu:
        raise StepRefused("NO_IOMMU: passthrough needs one")
    if gpu.passthrough or gpu.holders or gpu.vgpus or virtual.functions or any(i.held for i in gpu.instances):
        raise StepRefused("FUNCTIONS_IN_USE: something is on the GPU")
    after = replace(virtual, driver=VFIO, was_mig=gpu.mig.enabled, mixed=None)
    return replace(gpu, passthrough=True, instances=(), mig=Mig(gpu.mig.capable), virtual=after)


def _take_back(inventory: Inventory, gpu: Gpu, virtual: Virtual) -> Gpu:
    if not gpu.passthrough or gpu.holders:
        raise StepRefused("IN_USE: a virtual machine has the GPU" if gpu.holders else "NOT_FOUND: it is not handed out")
    keeps = gpu.mig.capable and inventory.family(gpu).mode.mode_survives_reboot
    mode = "enabled" if virtual.was_mig and keeps else "disabled"
    after = replace(virtual, driver="nvidia", was_mig=False, mixed=False)
    return replace(gpu, passthrough=False, mig=Mig(gpu.mig.capable, mode, mode), virtual=after)
