"""What is right and wrong about the devices of one virtual machine: each on its own, then all together."""

from __future__ import annotations

from shlex import quote

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker
from aliquot.libvirt import rules
from aliquot.libvirt.device_rules import Around, Row, detach_command, judged, keys
from aliquot.libvirt.identify import Known, know
from aliquot.libvirt.models import Domain


class Report(msgspec.Struct, frozen=True):
    """The judgement of one machine. ``problems`` are those of all its devices together."""

    vm: str
    running: bool
    rows: tuple[Row, ...]
    problems: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[Blocker, ...]:
        return (*(p for row in self.rows for p in row.problems), *self.problems)


def check(inventory: Inventory, domain: Domain, around: Around) -> Report:
    """Everything about one machine."""
    every = [know(inventory, hostdev) for hostdev in domain.hostdevs]
    rows = tuple(judged(inventory, domain, known, around) for known in every)
    problems = list(_together(inventory, domain, every, around))
    notes = []
    if domain.running and domain.persistent and keys(domain.live) != keys(domain.config):
        notes.append("the running machine and its definition have different devices: they agree after its next start")
    if not every:
        notes.append("it has no vGPU, no GPU and no other PCI device")
    return Report(domain.name, domain.running, rows, tuple(problems), tuple(notes))


def _together(inventory: Inventory, domain: Domain, every: list[Known], around: Around) -> list[Blocker]:
    """The definition, and the running machine where that differs: each must hold by itself."""
    found: list[Blocker] = []
    for hostdevs in (domain.config, domain.live):
        these = keys(hostdevs)
        for problem in rules.together(inventory, [k for k in every if k.hostdev.key in these], around.policy):
            found += [problem] if problem not in found else []
    seen: set[str] = set()
    for hostdev in domain.config:
        if hostdev.key in seen:
            found.append(
                Blocker("DUPLICATE", f"{hostdev.shown} is there twice", next_step=detach_command(domain, hostdev.key))
            )
        seen.add(hostdev.key)
    if not domain.graphics and any(k.hostdev.display for k in every):
        found.append(
            Blocker(
                "DISPLAY",
                "a vGPU has display='on', and the VM has no <graphics>: libvirt refuses to start it",
                next_step=f"virsh edit {quote(domain.name)}",
            )
        )
    return found
