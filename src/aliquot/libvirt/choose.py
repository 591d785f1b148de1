"""Choice of a VM's devices: free vGPUs of the requested types, or devices by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from aliquot.core.model import vgpu_types as tables
from aliquot.core.model.desired import RuleCode
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.errors import BlockedError, ConfigError
from aliquot.libvirt.identify import VFIO_PCI, IdentifiedDevice, device_names, hostdev_of, shared_parts, vgpus
from aliquot.libvirt.models import PCI, Hostdev

VmByDevice = Mapping[str, str]
"""The VM of each device, by mdev UUID or PCI address."""


class VmDeviceRequest(msgspec.Struct, frozen=True):
    """Requested devices of a VM."""

    types: tuple[tuple[str, int], ...] = ()
    """vGPU types with counts."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs to choose from; empty for any."""
    devices: tuple[str, ...] = ()
    """Functions, vGPU UUIDs, or PCI addresses of whole GPUs."""


def select_devices(
    inventory: Inventory, request: VmDeviceRequest, vm_by_device: VmByDevice
) -> tuple[IdentifiedDevice, ...]:
    """Return the devices in the requested order, without duplicates. Raises BlockedError with the rule, and ConfigError
    for a type that is in no table.
    """
    found: list[IdentifiedDevice] = []
    for device_name in request.devices:
        found.append(find_idle_device(inventory, device_name, vm_by_device))
    taken = {k.hostdev.key for k in found}
    if len(taken) < len(found):
        raise ConfigError("a device is given twice", details=tuple(sorted(k.hostdev.shown for k in found)))
    for name, count in request.types:
        wanted = _type_name(name)
        chosen = _idle_vgpus(inventory, wanted, request.gpus, vm_by_device, taken)[:count]
        if len(chosen) < count:
            raise _too_few_error(inventory, wanted, count, request.gpus, vm_by_device)
        found += chosen
        taken |= {k.hostdev.key for k in chosen}
    return tuple(found)


def _type_name(name: str) -> str:
    """Return the full or short name as typed. Raises ConfigError if it is in no table."""
    matches = {
        t.name for table in tables.tables() for t in table.types if name.lower() in (t.name.lower(), t.short.lower())
    }
    if not matches:
        raise ConfigError(f"unknown vGPU type {name!r}", code="UNKNOWN_TYPE", next_step="aliquot vgpu types")
    return name


def has_type(vgpu: Vgpu, name: str) -> bool:
    """Report whether a vGPU has the type of that full or short name."""
    return name.lower() in (vgpu.type.lower(), vgpu.type.rpartition(" ")[2].lower())


def _idle_vgpus(
    inventory: Inventory, name: str, gpus: tuple[str, ...], vm_by_device: VmByDevice, taken: set[str]
) -> list[IdentifiedDevice]:
    """Return the free vGPUs in the order of GPUs and functions."""
    found = []
    for gpu, vgpu in vgpus(inventory):
        device = IdentifiedDevice(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
        if has_type(vgpu, name) and (not gpus or gpu.pci in gpus) and device.hostdev.key not in taken:
            found += [device] if holder(device, vm_by_device) is None else []
    return found


def holder(device: IdentifiedDevice, vm_by_device: VmByDevice) -> Holder | None:
    """Return the holder of a device: a process with its handle open, or a VM that has it in its XML."""
    open_in = device.vgpu.holders if device.vgpu else device.function.holders if device.function else ()
    if not open_in and device.whole_gpu and device.gpu is not None:
        open_in = device.gpu.holders
    if open_in:
        return open_in[0]
    vm = next((vm_by_device[name] for name in sorted(device_names(device)) if name in vm_by_device), None)
    return Holder("vm", vm) if vm is not None else None


def _too_few_error(
    inventory: Inventory, name: str, count: int, gpus: tuple[str, ...], vm_by_device: VmByDevice
) -> BlockedError:
    every = [(g, v) for g, v in vgpus(inventory) if has_type(v, name) and (not gpus or g.pci in gpus)]
    holders = [holder(IdentifiedDevice(hostdev_of(g, v), gpu=g, vgpu=v), vm_by_device) for g, v in every]
    rows = [
        f"{vgpu.type} on {vgpu.function}: {f'{each} has it' if each else 'free'}"
        for (_, vgpu), each in zip(every, holders, strict=True)
    ]
    free = holders.count(None)
    return BlockedError(
        f"{count} x {name} requested, {free} free" + (f" of {len(every)}" if every else ": the node has none"),
        code="NO_VGPU",
        details=tuple(rows),
        next_step=_plan_hint(inventory, name, count - free, gpus) or "aliquot vgpu list",
    )


def _plan_hint(inventory: Inventory, name: str, missing: int, gpus: tuple[str, ...]) -> str:
    """Return the command that plans the missing vGPUs beside the present ones, on the first GPU that could hold them.
    If no GPU could, return the command that shows why.
    """
    hint = ""
    for gpu in inventory.gpus:
        table = inventory.vgpu_table(gpu)
        if table is None or (gpus and gpu.pci not in gpus):
            continue
        chosen = next((t for t in table.types if name.lower() in (t.name.lower(), t.short.lower())), None)
        if chosen is None:
            continue
        counts = _counts(gpu, chosen.name, missing)
        if counts[chosen.name] <= chosen.max:
            return plan_command(gpu, counts)
        hint = hint or f"aliquot vgpu types {gpu.pci}"
    return hint


def _counts(gpu: Gpu, name: str, missing: int) -> Counter[str]:
    return Counter(v.type for v in gpu.vgpus) + Counter({name: missing})


def find_idle_device(inventory: Inventory, name: str, vm_by_device: VmByDevice) -> IdentifiedDevice:
    """Return the device that a word names: a virtual function or a whole GPU by PCI address, or a vGPU by UUID. Raises
    BlockedError if it does not exist or is held.
    """
    device = _resolve(inventory, name.lower())
    current_holder = holder(device, vm_by_device)
    if current_holder is not None:
        raise _refusal("HELD", f"{current_holder} has {device.hostdev.shown}", "aliquot vgpu list")
    return device


def _resolve(inventory: Inventory, name: str) -> IdentifiedDevice:
    for gpu, vgpu in vgpus(inventory):
        if name == vgpu.uuid or (name == vgpu.function and vgpu.function != gpu.pci):
            return IdentifiedDevice(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
    for gpu in inventory.gpus:
        if name == gpu.pci:
            return _whole(gpu)
        functions = gpu.virtual.functions if gpu.virtual else ()
        for function in functions:
            if name == function.pci:
                if function.driver != VFIO_PCI:
                    raise _refusal("NO_VGPU", f"virtual function {name} has no vGPU", f"aliquot vgpu types {gpu.pci}")
                return IdentifiedDevice(Hostdev(PCI, address=name), gpu=gpu, function=function)
        if gpu.virtual and name in gpu.virtual.addresses:
            raise _refusal(
                "NO_FUNCTION", f"{name} is a virtual function that is disabled", f"aliquot vgpu enable {gpu.pci}"
            )
    raise _refusal("NO_VGPU", f"{name} is not a vGPU, virtual function or GPU of this node", "aliquot vgpu list")


def _whole(gpu: Gpu) -> IdentifiedDevice:
    """Return a whole GPU: already bound to vfio-pci, or left for libvirt to bind when the VM starts."""
    if parts := shared_parts(gpu):
        raise _refusal(
            "FUNCTIONS_IN_USE",
            f"GPU {gpu.pci} has {parts}: it cannot be passed through whole",
            f"aliquot vgpu disable {gpu.pci}",
        )
    if gpu.instances and not gpu.passthrough:
        raise _refusal("HELD", f"GPU {gpu.pci} has MIG instances", f"aliquot plan --gpu {gpu.pci} --mig disabled")
    return IdentifiedDevice(Hostdev(PCI, address=gpu.pci, managed=not gpu.passthrough), gpu=gpu, whole_gpu=True)


def _refusal(code: RuleCode, message: str, next_step: str) -> BlockedError:
    return BlockedError(message, code=code, next_step=next_step)
