"""Check of a single device of a VM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from shlex import quote

import msgspec

from aliquot.core.model.desired import RuleCode
from aliquot.core.model.inventory import Gpu, Holder, Inventory, IommuGroupPeer
from aliquot.core.model.plan import Blocker
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.core.planner.vgpu.vm_rules import VmPolicy
from aliquot.libvirt.identify import (
    VFIO_PCI,
    IdentifiedDevice,
    device_names,
    find_by_stable_uuid,
    shared_parts,
    vm_by_device,
)
from aliquot.libvirt.models import MDEV, PCI, Hostdev, LibvirtDomain, NodeDevice

VARIANT_DRIVERS = (10, 0)
"""The first version that accepts a device whose VFIO driver is not vfio-pci. Version 9.0 refuses it ("Unmanaged PCI
device ... must be manually detached"). The patches came between 9.9 and 10.0 (libvirt devel list, January 2024).
"""


class VmContext(msgspec.Struct, frozen=True):
    """Other facts that matter to a VM."""

    domains: tuple[LibvirtDomain, ...] = ()
    """The other domains."""
    mdevs: tuple[NodeDevice, ...] = ()
    """The mdevs that libvirt sees."""
    foreign: Mapping[str, tuple[IommuGroupPeer, ...]] = {}
    """By PCI address of a whole GPU: devices of its IOMMU group that are not part of its board, with their drivers."""
    policy: VmPolicy = "nvidia"
    version: tuple[int, int] | None = None
    """libvirt's version."""


class DeviceCheck(msgspec.Struct, frozen=True):
    """The findings about one device."""

    device: str
    what: str
    where: str
    """``definition``, ``running`` or ``both``."""
    problems: tuple[Blocker, ...] = ()
    """Problems that stop the VM from starting, or its guest from using the device."""
    notes: tuple[str, ...] = ()


def check_device(
    inventory: Inventory, domain: LibvirtDomain, device: IdentifiedDevice, context: VmContext
) -> DeviceCheck:
    """Return what one device is, and its problems. The VM need not have ``device`` yet."""
    problems: list[Blocker] = []
    notes: list[str] = []
    if device.vgpu is not None and device.gpu is not None:
        what = f"{device.vgpu.type} of GPU {device.gpu.index} ({device.vgpu.function})"
        problems += _vgpu(domain, device, device.gpu)
        notes += _too_old(device, context)
    elif device.whole_gpu and device.gpu is not None:
        what = f"GPU {device.gpu.index}, {device.gpu.product}, whole"
        problems += _whole(domain, device, device.gpu, context)
    elif device.function is not None and device.gpu is not None:
        what = f"virtual function {device.function.number} of GPU {device.gpu.index}"
        problems += _function(domain, device, device.gpu)
    elif device.disabled and device.gpu is not None:
        what = f"virtual function of GPU {device.gpu.index}, disabled"
        problems.append(_switched_off(device.gpu, device.hostdev.address))
    else:
        what, absent_problems, absent_notes = _absent(inventory, device, context)
        problems += absent_problems
        notes += absent_notes
    if device.in_inventory:
        problems += _host(inventory, device)
        problems += _held(domain, device, context)
        notes += _shut_off_vms(domain, device, context)
    return DeviceCheck(device.hostdev.shown, what, _side(domain, device), tuple(problems), tuple(notes))


def _side(domain: LibvirtDomain, device: IdentifiedDevice) -> str:
    live, config = device.hostdev.key in keys(domain.live), device.hostdev.key in keys(domain.config)
    return "both" if live and config else "running" if live else "definition"


def _vgpu(domain: LibvirtDomain, device: IdentifiedDevice, gpu: Gpu) -> list[Blocker]:
    hostdev = device.hostdev
    wrong = ""
    if hostdev.kind == PCI and not gpu.uses_vendor_vfio:
        wrong = f"the vGPU of {hostdev.address} is an mdev on this host: the VM must name its UUID"
    elif hostdev.kind == MDEV and gpu.uses_vendor_vfio and device.vgpu is not None:
        wrong = f"this kernel has no mdevs: the vGPU is now the PCI function {device.vgpu.function}"
    if wrong:
        return [_reattach("WORLD", wrong, domain, device, gpu)]
    if hostdev.kind == PCI and hostdev.managed:
        wrong = (
            f"{hostdev.address} has a vGPU and managed='yes': libvirt would bind it to vfio-pci, which the "
            "driver refuses (EINVAL)"
        )
        return [_reattach("MANAGED", wrong, domain, device, gpu)]
    return []


def _too_old(device: IdentifiedDevice, context: VmContext) -> list[str]:
    if device.hostdev.kind != PCI or context.version is None or context.version >= VARIANT_DRIVERS:
        return []
    have, want = (".".join(map(str, v)) for v in (context.version, VARIANT_DRIVERS))
    return [
        f"libvirt {have} starts no VM with {device.hostdev.address}: it supports only the VFIO driver vfio-pci, but "
        f"the vGPU needs NVIDIA's own (libvirt {want} or later supports it)"
    ]


def _reattach(rule: RuleCode, wrong: str, domain: LibvirtDomain, device: IdentifiedDevice, gpu: Gpu) -> Blocker:
    """Return the blocker of a device that only has to be attached again."""
    message = f"{wrong}; detach it, and attach {device.vgpu.function if device.vgpu else 'it'} again"
    return Blocker(rule, message, gpu.pci, step=detach_command(domain, device.hostdev.key))


def _whole(domain: LibvirtDomain, device: IdentifiedDevice, gpu: Gpu, context: VmContext) -> list[Blocker]:
    found = []
    if not gpu.passthrough and not device.hostdev.managed:
        found.append(
            Blocker(
                "NOT_BOUND",
                f"GPU {gpu.pci} is not bound to vfio-pci, and with managed='no' libvirt does not bind it",
                gpu.pci,
                step=f"aliquot passthrough enable {gpu.pci}",
            )
        )
    if parts := shared_parts(gpu):
        message = f"GPU {gpu.pci} has {parts}: it cannot be passed through whole"
        found.append(Blocker("FUNCTIONS_IN_USE", message, gpu.pci, step=f"aliquot vgpu disable {gpu.pci}"))
    foreign = [each for each in context.foreign.get(gpu.pci, ()) if each.pci not in keys(domain.hostdevs)]
    if foreign:
        listed = ", ".join(map(str, foreign))
        message = f"the IOMMU group of GPU {gpu.pci} has other devices that the VM does not get: {listed}"
        found.append(Blocker("IOMMU_GROUP", message, gpu.pci, step=f"aliquot passthrough check {gpu.pci}"))
    return found


def _function(domain: LibvirtDomain, device: IdentifiedDevice, gpu: Gpu) -> list[Blocker]:
    function = device.function
    if function is None or function.driver == VFIO_PCI:
        return []
    return [
        Blocker(
            "NO_VGPU",
            f"virtual function {function.pci} has no vGPU type",
            gpu.pci,
            step=f"aliquot vgpu types {gpu.pci}",
        )
    ]


def _switched_off(gpu: Gpu, address: str) -> Blocker:
    recorded_vgpu = (
        next((v for v in gpu.virtual.recorded_vgpus if v.function == address), None) if gpu.virtual else None
    )
    if recorded_vgpu is not None:
        message = f"{address} is gone since the last reboot; it had the vGPU type {recorded_vgpu.type}"
        return Blocker("NO_FUNCTION", message, gpu.pci, step="aliquot restore --boot")
    message = f"{address} does not exist while the virtual functions of GPU {gpu.pci} are disabled"
    return Blocker("NO_FUNCTION", message, gpu.pci, step=f"aliquot vgpu enable {gpu.pci}")


def _absent(inventory: Inventory, device: IdentifiedDevice, context: VmContext) -> tuple[str, list[Blocker], list[str]]:
    """Return the description, blockers and notes of a device outside the inventory: another PCI device, another
    vendor's mdev, or an mdev that does not exist.
    """
    hostdev = device.hostdev
    if hostdev.kind == PCI:
        return "not an NVIDIA GPU", [], ["not checked: it is not a GPU of this node"]
    other = next((m for m in context.mdevs if m.uuid == hostdev.uuid and m.active), None)
    if other is not None:
        return f"mdev of {other.parent}, type {other.type}", [], ["not checked: it is not an NVIDIA vGPU"]
    origin = find_by_stable_uuid(inventory, hostdev.uuid)
    defined = next((m for m in context.mdevs if m.uuid == hostdev.uuid), None)
    if defined is not None:
        message = f"mdev {hostdev.uuid} is defined ({defined.type} on {defined.parent}), but not started"
        return "mdev, not started", [Blocker("NO_MDEV", message, step=_start(hostdev.uuid))], []
    message = f"mdev {hostdev.uuid} does not exist"
    if origin is None:
        return "nothing", [Blocker("NO_MDEV", message, step="aliquot vgpu list")], []
    gpu, recorded_vgpu, function = origin
    if recorded_vgpu is None:
        message += f": it is the UUID that a vGPU on {function} of GPU {gpu.index} gets"
        return "nothing", [Blocker("NO_MDEV", message, gpu.pci, step=f"aliquot vgpu types {gpu.pci}")], []
    message += f" since the last reboot: it was {recorded_vgpu.type} on {function}"
    present_uuids = {v.uuid for v in gpu.vgpus}
    gone = [v for v in gpu.virtual.recorded_vgpus if v.uuid not in present_uuids] if gpu.virtual else []
    command = plan_command(gpu, Counter(v.type for v in (*gpu.vgpus, *gone)))
    return "nothing", [Blocker("NO_MDEV", message, gpu.pci, suggestion=command, step="aliquot restore --boot")], []


def _start(uuid: str) -> str:
    return f"aliquot libvirt nodedev start {uuid}"


def _host(inventory: Inventory, device: IdentifiedDevice) -> list[Blocker]:
    host = inventory.host
    if host is None:
        return []
    gpu = device.gpu.pci if device.gpu else ""
    found = []
    if not host.iommu and device.hostdev.kind == PCI:
        found.append(
            Blocker(
                "NO_IOMMU",
                "the IOMMU is off: no PCI function can be passed through to a VM",
                gpu,
                step="switch it on in the firmware and with intel_iommu=on (AMD: amd_iommu=on), then reboot",
            )
        )
    if not host.vfio:
        found.append(Blocker("NO_VFIO", "the VFIO modules are not loaded", gpu, step="modprobe vfio-pci"))
    return found


def _held(domain: LibvirtDomain, device: IdentifiedDevice, context: VmContext) -> list[Blocker]:
    """Return a blocker if another running VM has the device in its XML, or a process has its handle open."""
    running_users = vm_by_device(tuple(d for d in context.domains if d.running), exclude_uuid=domain.uuid)
    holders: tuple[Holder, ...] = tuple(
        Holder("vm", running_users[n]) for n in sorted(device_names(device)) if n in running_users
    )
    open_handles = device.vgpu.holders if device.vgpu else device.function.holders if device.function else ()
    if device.whole_gpu and device.gpu is not None and (device.gpu.passthrough or device.hostdev.managed):
        open_handles = device.gpu.holders
    if domain.running and device.hostdev.key in keys(domain.live):
        open_handles = ()  # this VM itself has it open
    holders += tuple(h for h in open_handles if h.name not in {*running_users.values(), domain.name})
    if not holders:
        return []
    gpu = device.gpu.pci if device.gpu else ""
    message = f"{device.hostdev.shown} is held by {', '.join(map(str, holders))}"
    return [Blocker("HELD", message, gpu, holders=holders, step=detach_command(domain, device.hostdev.key))]


def _shut_off_vms(domain: LibvirtDomain, device: IdentifiedDevice, context: VmContext) -> list[str]:
    """Return a note about VMs that are shut off and have the same device. Only one of them can run at a time."""
    shut_off_users = vm_by_device(tuple(d for d in context.domains if not d.running), exclude_uuid=domain.uuid)
    vms = sorted({shut_off_users[n] for n in device_names(device) if n in shut_off_users})
    return [f"{', '.join(vms)} has it in its definition too: only one of them can run at a time"] if vms else []


def detach_command(domain: LibvirtDomain, key: str) -> str:
    """Return the command that detaches a device from a VM."""
    return f"aliquot libvirt detach {quote(domain.name)} {key}"


def keys(hostdevs: Iterable[Hostdev]) -> set[str]:
    return {h.key for h in hostdevs}
