"""Whether one more vGPU fits beside those that are wished on its GPU already, made or not.

The driver's list of types (``availableTypes``) is as of the last look: of two users who enable vGPUs in the same second
the second one would be let in by it and fail on the hardware.
"""

from __future__ import annotations

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import EqualRoom, MigRoom, Room
from aliquot.kubernetes.kinds.harvester import PCIDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import World, listed, parent_of


def table_of(function: PCIDevice | None, type_name: str) -> VgpuTable | None:
    """The table of the board that has a type: where one PCI id serves several boards, the type's name decides."""
    device = "" if function is None else f"0x{function.status.device_id}{function.status.vendor_id}".lower()
    for row in vgpu.rows():
        if device in ("", row.pci_device.lower()):
            found = vgpu.table(row.pci_device, row.subsystem)
            if found is not None and any(each.name == type_name for each in found.types):
                return found
    return None


def beside(world: World, device: VGPUDevice) -> str:
    """Why a vGPU of this type does not fit beside the others that are enabled on its GPU; "" if it does, or if the
    tables do not know.
    """
    parent = parent_of(device)
    table = table_of(world.functions.get(parent), device.spec.type_name)
    if table is None:
        return ""
    others = [v for v in world.children(parent) if v.name != device.name and v.spec.enabled and v.spec.type_name]
    types = [table.by_name.get(each.spec.type_name) for each in others]
    wanted = table.by_name[device.spec.type_name]
    known = [each for each in types if each is not None]
    room = _room(world, parent, table, wanted, known)
    if room is None:
        return ""
    state = room.start([])
    for each in known:
        found = room.put(state, each)
        if found is None:
            return ""  # what is there already breaks these rules: they are not this GPU's
        state = found[0]
    if room.put(state, wanted) is not None:
        return ""
    there = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(others, key=lambda v: v.name))
    why = f"{device.spec.type_name} does not fit beside what is enabled on {parent}"
    return f"{why} ({listed(there)})" if there else f"{why}: there is no GPU instance for it"


def _room(world: World, parent: str, table: VgpuTable, wanted: VgpuType, known: list[VgpuType]) -> Room | None:
    if not wanted.mig_backed:
        return EqualRoom()
    mig = world.migs.get(parent)
    if mig is None:
        return None
    instances = [(int(i), p.id) for p in mig.status.profile_status for i in (p.instances or ()) if i.isdecimal()]
    profiles = {p.name.removeprefix("MIG "): p.id for p in mig.status.profile_status}
    return MigRoom(table, instances, profiles)
