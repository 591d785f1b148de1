"""The planner's rules about a VM as a whole: its host devices are translated to the planner's values and back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.plan import Blocker
from aliquot.core.model.vgpu_types import TIME_SLICED, VgpuType
from aliquot.core.planner.vgpu import vm_rules as vm
from aliquot.libvirt.identify import IdentifiedDevice
from aliquot.libvirt.models import MDEV, Hostdev


def check_devices(
    inventory: Inventory, identified: Sequence[IdentifiedDevice], policy: vm.VmPolicy
) -> tuple[Blocker, ...]:
    """Return what prevents one VM from having all of these. Devices outside the inventory are omitted."""
    devices = [_device(inventory, device, device.gpu) for device in identified if device.gpu is not None]
    return vm.check(devices, policy)


def with_ramfb(
    inventory: Inventory, before: Sequence[IdentifiedDevice], added: Sequence[IdentifiedDevice], *, auto: bool
) -> tuple[Hostdev, ...]:
    """Return the added devices, with ramFB and display on one of them if ``auto`` is set and the VM has none yet. Only
    mdevs: libvirt 9.0 refuses these attributes on PCI devices.
    """
    if not auto or any(k.hostdev.ramfb for k in before):
        return tuple(k.hostdev for k in added)
    devices = [_device(inventory, k, k.gpu) for k in added if k.gpu is not None]
    plain = [
        d if k.hostdev.kind == MDEV else msgspec.structs.replace(d, display=False)
        for k, d in zip(added, devices, strict=True)
    ]
    return tuple(
        msgspec.structs.replace(k.hostdev, display=True, ramfb=True) if d.ramfb else k.hostdev
        for k, d in zip(added, vm.default_ramfb(plain), strict=True)
    )


def _device(inventory: Inventory, device: IdentifiedDevice, gpu: Gpu) -> vm.VmDevice:
    return vm.VmDevice(
        gpu=gpu,
        type=_type(inventory, gpu, device.vgpu) if device.vgpu else None,
        ramfb=device.hostdev.ramfb,
        display=device.hostdev.display,
        node=inventory.node,
        on_nvswitch=inventory.on_nvswitch(gpu),
    )


def _type(inventory: Inventory, gpu: Gpu, vgpu: Vgpu) -> VgpuType:
    """Return the type's row. A type that is in no table is checked by its name only: how many a VM may have is
    unknown.
    """
    table = inventory.vgpu_table(gpu)
    row = (table.by_id.get(vgpu.type_id) or table.by_name.get(vgpu.type)) if table else None
    series = vgpu.type[-1:] if vgpu.type[-1:] in "ABCQ" else ""
    return row or VgpuType(vgpu.type, series, TIME_SLICED, 0, 0, per_vm=vm.MAX_VGPUS_PER_VM)
