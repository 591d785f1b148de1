"""Whether one more vGPU fits beside those that are wished on its GPU already, made or not.

The driver's list of types (``availableTypes``) is as of the last look: of two users who enable vGPUs in the same second
the second one would be let in by it and fail on the hardware.
"""

from __future__ import annotations

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import EqualSizePolicy, MigBackedPolicy, PlacementPolicy
from aliquot.kubernetes.kinds.harvester import PCIDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    parent_gpu_name,
    shorten_list,
)


def table_of(function: PCIDevice | None, type_name: str) -> VgpuTable | None:
    """The table of the board that has a type: where one PCI id serves several boards, the type's name decides."""
    device = "" if function is None else f"0x{function.status.device_id}{function.status.vendor_id}".lower()
    for row in vgpu.rows():
        if device in ("", row.pci_device.lower()):
            found = vgpu.table(row.pci_device, row.subsystem)
            if found is not None and any(each.name == type_name for each in found.types):
                return found
    return None


def explain_misfit(snapshot: AdmissionSnapshot, device: VGPUDevice) -> str:
    """Why a vGPU of this type does not fit beside the others that are enabled on its GPU; "" if it does, or if the
    tables do not know.
    """
    parent = parent_gpu_name(device)
    table = table_of(snapshot.functions.get(parent), device.spec.type_name)
    if table is None:
        return ""
    others = [v for v in snapshot.vgpus_of(parent) if v.name != device.name and v.spec.enabled and v.spec.type_name]
    types = [table.by_name.get(each.spec.type_name) for each in others]
    wanted = table.by_name[device.spec.type_name]
    known = [each for each in types if each is not None]
    policy = _placement_policy(snapshot, parent, table, wanted, known)
    if policy is None:
        return ""
    state = policy.initial_state([])
    for each in known:
        found = policy.place(state, each)
        if found is None:
            return ""  # what is there already breaks these rules: they are not this GPU's
        state = found[0]
    if policy.place(state, wanted) is not None:
        return ""
    enabled = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(others, key=lambda v: v.name))
    why = f"{device.spec.type_name} does not fit beside what is enabled on {parent}"
    return f"{why} ({shorten_list(enabled)})" if enabled else f"{why}: there is no GPU instance for it"


def _placement_policy(
    snapshot: AdmissionSnapshot, parent: str, table: VgpuTable, wanted: VgpuType, known: list[VgpuType]
) -> PlacementPolicy | None:
    if not wanted.mig_backed:
        return EqualSizePolicy()
    mig = snapshot.migs.get(parent)
    if mig is None:
        return None
    instances = [(int(i), p.id) for p in mig.status.profile_status for i in (p.instances or ()) if i.isdecimal()]
    profiles = {p.name.removeprefix("MIG "): p.id for p in mig.status.profile_status}
    return MigBackedPolicy(table, instances, profiles)
