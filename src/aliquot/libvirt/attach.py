"""Plan of an attach or a detach, as data: computed from the host, its domains and the request, and checked before
anything changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Literal

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker
from aliquot.errors import BlockedError, UsageError
from aliquot.libvirt import rules
from aliquot.libvirt.choose import VmDeviceRequest, has_type, select_devices
from aliquot.libvirt.device_rules import VmContext, check_device
from aliquot.libvirt.errors import LibvirtCode, NoVmError
from aliquot.libvirt.identify import IdentifiedDevice, identify_device, vm_by_device
from aliquot.libvirt.models import MDEV, Hostdev, LibvirtDomain


class AttachTarget(msgspec.Struct, frozen=True):
    """The sides of a VM that a change applies to."""

    config: bool = True
    """Change the definition."""
    live: bool = False
    """Change the running VM."""
    ramfb: str = "auto"
    """``auto`` (on exactly one vGPU that can show a display) or ``none``."""


class DeviceChange(msgspec.Struct, frozen=True):
    """Devices to attach to one VM, or to detach from it, in order."""

    vm: str
    uuid: str
    devices: tuple[Hostdev, ...]
    descriptions: tuple[str, ...]
    target: AttachTarget
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()


def find_domain(domains: Sequence[LibvirtDomain], name: str) -> LibvirtDomain:
    """Return the VM of that name or UUID. Raises NoVmError with the names of all VMs."""
    for domain in domains:
        if name in (domain.name, domain.uuid):
            return domain
    names = ", ".join(sorted(d.name for d in domains)) or "none"
    raise NoVmError(f"VM {name!r} not found", details=(f"VMs in libvirt: {names}",), next_step="virsh list --all")


def change_target(domain: LibvirtDomain, *, live: bool, config: bool, ramfb: str = "auto") -> AttachTarget:
    """Return the sides that a change applies to. By default it applies only to the definition, even if the VM runs,
    because plugging a GPU into a guest needs an explicit request. Raises BlockedError if the VM has no such side.
    """
    if live and not domain.running:
        raise _refusal("VM_NOT_RUNNING", f"VM {domain.name} is not running: leave out --live")
    config = config or not live
    if config and not domain.persistent:
        raise _refusal("TRANSIENT", f"VM {domain.name} has no definition: change only the running VM, with --live")
    if live and ramfb == "on":
        raise UsageError("ramFB cannot be plugged into a running VM", next_step="aliquot libvirt attach --help")
    return AttachTarget(config, live, "none" if live else ramfb)


def plan_attach(
    inventory: Inventory, domain: LibvirtDomain, request: VmDeviceRequest, target: AttachTarget, context: VmContext
) -> DeviceChange:
    """Return the devices that a VM gets, with everything that prevents it as blockers. Raises BlockedError if no device
    is available, or it is held.
    """
    selected = select_devices(inventory, request, vm_by_device((*context.domains, domain)))
    before = [identify_device(inventory, h) for h in (domain.config if target.config else domain.live)]
    hostdevs = rules.with_ramfb(inventory, before, selected, auto=target.ramfb == "auto" and domain.graphics)
    added = [msgspec.structs.replace(k, hostdev=h) for k, h in zip(selected, hostdevs, strict=True)]
    rows = [check_device(inventory, domain, device, context) for device in added]
    blockers = [b for row in rows for b in row.problems]
    earlier = set(rules.check_devices(inventory, before, context.policy))
    blockers += [b for b in rules.check_devices(inventory, [*before, *added], context.policy) if b not in earlier]
    return DeviceChange(
        vm=domain.name,
        uuid=domain.uuid,
        devices=tuple(hostdevs),
        descriptions=tuple(_describe_device(k) for k in added),
        target=target,
        blockers=tuple(blockers),
        notes=tuple(dict.fromkeys([*_notes(domain, target, added), *(note for row in rows for note in row.notes)])),
    )


def _notes(domain: LibvirtDomain, target: AttachTarget, added: Sequence[IdentifiedDevice]) -> list[str]:
    notes = []
    if domain.running and not target.live:
        notes.append(f"VM {domain.name} is running: it gets the devices at its next start")
    if target.live and not target.config:
        notes.append("only the running VM has the devices: they are gone at its next start (add --config to keep them)")
    if target.live:
        notes.append(
            "no ramFB: QEMU cannot add it to a running VM, so the vGPU shows no display until its driver loads"
        )
    elif target.ramfb == "auto" and not domain.graphics and any(k.vgpu for k in added):
        notes.append(f"no ramFB: VM {domain.name} has no <graphics> to show it on")
    return notes


def _describe_device(device: IdentifiedDevice) -> str:
    if device.gpu is None:
        return device.hostdev.shown
    if device.vgpu is not None:
        return f"{device.vgpu.type} of GPU {device.gpu.index}"
    return f"GPU {device.gpu.index}, whole" if device.whole_gpu else f"virtual function of GPU {device.gpu.index}"


def plan_detach(
    inventory: Inventory, domain: LibvirtDomain, request: VmDeviceRequest, target: AttachTarget, *, all_devices: bool
) -> DeviceChange:
    """Return the devices to detach from a VM: the named ones, a count of a type, or all that are NVIDIA's. Each is the
    element in the VM's XML. Raises BlockedError for a device that the VM does not have.
    """
    hostdevs = domain.config if target.config else domain.live
    chosen: list[IdentifiedDevice] = []
    devices = [identify_device(inventory, h) for h in hostdevs]
    for word in request.devices:
        chosen.append(_find_device(domain, devices, word.lower()))
    for name, count in request.types:
        fitting = [k for k in devices if k.vgpu and has_type(k.vgpu, name) and k not in chosen]
        if len(fitting) < count:
            raise _refusal("NOT_ATTACHED", f"VM {domain.name} has {len(fitting)} x {name}, not {count}", domain.name)
        chosen += fitting[len(fitting) - count :]
    if all_devices:
        chosen = [k for k in devices if k.in_inventory or k.hostdev.kind == MDEV]
    if not chosen:
        raise _refusal("NOT_ATTACHED", f"VM {domain.name} has no vGPU and no GPU", domain.name)
    notes = []
    if domain.running and not target.live:
        notes.append(f"VM {domain.name} is running, and keeps the devices until it is shut down")
    return DeviceChange(
        vm=domain.name,
        uuid=domain.uuid,
        devices=tuple(k.hostdev for k in chosen),
        descriptions=tuple(_describe_device(k) for k in chosen),
        target=target,
        notes=tuple(notes),
    )


def _find_device(domain: LibvirtDomain, devices: Sequence[IdentifiedDevice], word: str) -> IdentifiedDevice:
    for device in devices:
        function = device.vgpu.function if device.vgpu else ""
        if word in (device.hostdev.key, function, device.vgpu.uuid if device.vgpu else ""):
            return device
    raise _refusal("NOT_ATTACHED", f"VM {domain.name} has no device {word}", domain.name)


def _refusal(code: LibvirtCode | Literal["TRANSIENT"], message: str, vm: str = "") -> BlockedError:
    return BlockedError(
        message, code=code, next_step=f"aliquot libvirt check {quote(vm)}" if vm else "aliquot libvirt attach --help"
    )
