"""Check of the devices of one VM: each device separately, then all together."""

from __future__ import annotations

from shlex import quote

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker
from aliquot.libvirt import rules
from aliquot.libvirt.device_rules import DeviceCheck, VmContext, check_device, detach_command, keys
from aliquot.libvirt.identify import IdentifiedDevice, identify_device
from aliquot.libvirt.models import LibvirtDomain


class VmCheckReport(msgspec.Struct, frozen=True):
    """The findings about one VM."""

    vm: str
    running: bool
    rows: tuple[DeviceCheck, ...]
    problems: tuple[Blocker, ...] = ()
    """Problems of all its devices together."""
    notes: tuple[str, ...] = ()

    @property
    def all_problems(self) -> tuple[Blocker, ...]:
        return (*(p for row in self.rows for p in row.problems), *self.problems)


def check(inventory: Inventory, domain: LibvirtDomain, context: VmContext) -> VmCheckReport:
    """Check all devices of one VM."""
    devices = [identify_device(inventory, hostdev) for hostdev in domain.hostdevs]
    rows = tuple(check_device(inventory, domain, device, context) for device in devices)
    problems = list(_check_together(inventory, domain, devices, context))
    notes = []
    if domain.running and domain.persistent and keys(domain.live) != keys(domain.config):
        notes.append("the running VM and its definition have different devices: the next start applies the definition")
    if not devices:
        notes.append("the VM has no vGPU, no GPU and no other PCI device")
    return VmCheckReport(domain.name, domain.running, rows, tuple(problems), tuple(notes))


def _check_together(
    inventory: Inventory, domain: LibvirtDomain, devices: list[IdentifiedDevice], context: VmContext
) -> list[Blocker]:
    """Check the definition, and the running VM if it differs. Each must be valid without the other."""
    found: list[Blocker] = []
    for hostdevs in (domain.config, domain.live):
        side_keys = keys(hostdevs)
        for problem in rules.check_devices(
            inventory, [k for k in devices if k.hostdev.key in side_keys], context.policy
        ):
            found += [problem] if problem not in found else []
    seen: set[str] = set()
    for hostdev in domain.config:
        if hostdev.key in seen:
            found.append(
                Blocker("DUPLICATE", f"{hostdev.shown} is listed twice", step=detach_command(domain, hostdev.key))
            )
        seen.add(hostdev.key)
    if not domain.graphics and any(k.hostdev.display for k in devices):
        found.append(
            Blocker(
                "DISPLAY",
                "a vGPU has display='on', but the VM has no <graphics>: libvirt refuses to start it",
                step=f"virsh edit {quote(domain.name)}",
            )
        )
    return found
