"""The check whether another vGPU fits beside the vGPUs that are requested on its GPU, whether these exist or not.

The driver's list of types (``availableTypes``) dates from the last observation. If two users enable vGPUs in the same
second, the list alone would admit the second one, which would then fail on the hardware.
"""

from __future__ import annotations

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.vgpu.placement_policies import MigBackedPolicy
from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester import PCIDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PARENT_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    parent_gpu_name,
    shorten_list,
)
from aliquot.kubernetes.virtual_machines.harvester.placements import SharedGpu, time_sliced
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def table_of(function: PCIDevice | None, type_name: str) -> VgpuTable | None:
    """Return the table of the board that has a type. If several boards share a PCI id, the type's name decides."""
    device = "" if function is None else f"0x{function.status.device_id}{function.status.vendor_id}".lower()
    for row in vgpu.rows():
        if device in ("", row.pci_device.lower()):
            found = vgpu.table(row.pci_device, row.subsystem)
            if found is not None and any(each.name == type_name for each in found.types):
                return found
    return None


def explain_misfit(snapshot: AdmissionSnapshot, device: VGPUDevice) -> Message | None:
    """Return why a vGPU of this type does not fit beside the other enabled vGPUs of its GPU, with the next command;
    None if it fits or no table applies.
    """
    parent = parent_gpu_name(device)
    table = table_of(snapshot.functions.get(parent), device.spec.type_name)
    if table is None:
        return None
    others = [v for v in snapshot.vgpus_of(parent) if v.name != device.name and v.spec.enabled and v.spec.type_name]
    types = [table.by_name.get(each.spec.type_name) for each in others]
    wanted = table.by_name[device.spec.type_name]
    known = [each for each in types if each is not None]
    shared = _sharing(snapshot, parent, table, wanted, known)
    if shared is None:
        return None
    policy, state = shared.policy, shared.policy.initial_state(shared.placed)
    for each in shared.rest:
        found = policy.place(state, each)
        if found is None:
            return None  # the enabled vGPUs break these rules: the rules do not apply to this GPU
        state = found[0]
    if policy.place(state, wanted) is not None:
        return None
    enabled = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(others, key=lambda v: v.name))
    why = f"{device.spec.type_name} does not fit beside what is enabled on {parent}"
    if not enabled:
        return advice(f"{why}: it has no GPU instance for this type", f"kubectl edit migconfiguration {parent}")
    return advice(f"{why} ({shorten_list(enabled)})", f"kubectl get vgpudevices -l {PARENT_LABEL}={parent}")


def _sharing(
    snapshot: AdmissionSnapshot, parent: str, table: VgpuTable, wanted: VgpuType, known: list[VgpuType]
) -> SharedGpu | None:
    if not wanted.mig_backed:
        return time_sliced(snapshot.gpus.get(parent), table, known)
    mig = snapshot.migs.get(parent)
    if mig is None:
        return None
    instances = [(int(i), p.id) for p in mig.status.profile_status for i in (p.instances or ()) if i.isdecimal()]
    profiles = {p.name.removeprefix("MIG "): p.id for p in mig.status.profile_status}
    return SharedGpu(MigBackedPolicy(table, instances, profiles), (), known)
