"""What an attach or a detach comes to, as data: computed from the machine, its domains and what was asked, and judged
before anything is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker
from aliquot.errors import BlockedError, UsageError
from aliquot.libvirt import rules
from aliquot.libvirt.choose import Ask, is_type, pick
from aliquot.libvirt.device_rules import Around, judged
from aliquot.libvirt.errors import NoVmError
from aliquot.libvirt.identify import Known, know, users
from aliquot.libvirt.models import Domain, Hostdev


class Target(msgspec.Struct, frozen=True):
    """Where a change goes: the definition (``config``), the running machine (``live``), or both. ``ramfb`` is ``auto``
    (on exactly one vGPU that can show a display) or ``none``.
    """

    config: bool = True
    live: bool = False
    ramfb: str = "auto"


class Change(msgspec.Struct, frozen=True):
    """Devices to attach to one machine, or to detach from it, in order."""

    vm: str
    uuid: str
    devices: tuple[Hostdev, ...]
    what: tuple[str, ...]
    target: Target
    blockers: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()


def find(domains: Sequence[Domain], word: str) -> Domain:
    """The machine of that name or UUID. Raises NoVmError with the names that there are."""
    for domain in domains:
        if word in (domain.name, domain.uuid):
            return domain
    names = ", ".join(sorted(d.name for d in domains)) or "none"
    raise NoVmError(f"there is no VM {word!r}", details=(f"libvirt has: {names}",), next_step="virsh list --all")


def target(domain: Domain, *, live: bool, config: bool, ramfb: str = "auto") -> Target:
    """Where a change goes. Without a word it goes to the definition alone, running machine or not: plugging a GPU into
    a guest is for those who ask for it. Raises BlockedError where the machine has no such side.
    """
    if live and not domain.running:
        raise _refuse("VM_NOT_RUNNING", f"VM {domain.name} does not run: it can only be changed for its next start")
    config = config or not live
    if config and not domain.persistent:
        raise _refuse("TRANSIENT", f"VM {domain.name} has no definition: it can only be changed with --live")
    if live and ramfb == "on":
        raise UsageError("ramFB cannot be plugged into a running VM", next_step="aliquot libvirt attach --help")
    return Target(config, live, "none" if live else ramfb)


def attaching(inventory: Inventory, domain: Domain, ask: Ask, where: Target, around: Around) -> Change:
    """The devices that a machine gets, with everything that speaks against it as blockers. Raises BlockedError where
    there is nothing to give, or somebody else has it.
    """
    picked = pick(inventory, ask, users((*around.domains, domain)))
    before = [know(inventory, h) for h in (domain.config if where.config else domain.live)]
    hostdevs = rules.with_ramfb(inventory, before, picked, auto=where.ramfb == "auto" and domain.graphics)
    added = [msgspec.structs.replace(k, hostdev=h) for k, h in zip(picked, hostdevs, strict=True)]
    rows = [judged(inventory, domain, known, around) for known in added]
    blockers = [b for row in rows for b in row.problems]
    earlier = set(rules.together(inventory, before, around.policy))
    blockers += [b for b in rules.together(inventory, [*before, *added], around.policy) if b not in earlier]
    return Change(
        vm=domain.name,
        uuid=domain.uuid,
        devices=tuple(hostdevs),
        what=tuple(_what(k) for k in added),
        target=where,
        blockers=tuple(blockers),
        notes=tuple(dict.fromkeys([*_notes(domain, where, added), *(note for row in rows for note in row.notes)])),
    )


def _notes(domain: Domain, where: Target, added: Sequence[Known]) -> list[str]:
    notes = []
    if domain.running and not where.live:
        notes.append(f"VM {domain.name} runs: it gets them at its next start")
    if where.live and not where.config:
        notes.append("the running machine only: they are gone after its next start (add --config to keep them)")
    if where.live:
        notes.append(
            "no ramFB: QEMU cannot plug it into a running machine, so the vGPU shows nothing before its driver"
        )
    elif where.ramfb == "auto" and not domain.graphics and any(k.vgpu for k in added):
        notes.append(f"no ramFB: VM {domain.name} has no <graphics> to show it on")
    return notes


def _what(known: Known) -> str:
    if known.gpu is None:
        return known.hostdev.shown
    if known.vgpu is not None:
        return f"{known.vgpu.type} of GPU {known.gpu.index}"
    return f"GPU {known.gpu.index}, whole" if known.whole else f"virtual function of GPU {known.gpu.index}"


def detaching(inventory: Inventory, domain: Domain, ask: Ask, where: Target, *, every: bool) -> Change:
    """The devices to take from a machine: those that were named, so many of a type, or all that are NVIDIA's. Each is
    the element as the machine has it. Raises BlockedError for one that it does not have.
    """
    there = domain.config if where.config else domain.live
    chosen: list[Known] = []
    here = [know(inventory, h) for h in there]
    for word in ask.devices:
        chosen.append(_there(domain, here, word.lower()))
    for name, count in ask.types:
        fitting = [k for k in here if k.vgpu and is_type(k.vgpu, name) and k not in chosen]
        if len(fitting) < count:
            raise _refuse("NOT_ATTACHED", f"VM {domain.name} has {len(fitting)} x {name}, not {count}", domain.name)
        chosen += fitting[len(fitting) - count :]
    if every:
        chosen = [k for k in here if k.ours or k.hostdev.kind == "mdev"]
    if not chosen:
        raise _refuse("NOT_ATTACHED", f"VM {domain.name} has no vGPU and no GPU", domain.name)
    notes = []
    if domain.running and not where.live:
        notes.append(f"VM {domain.name} runs, and keeps them until it is shut down")
    return Change(
        vm=domain.name,
        uuid=domain.uuid,
        devices=tuple(k.hostdev for k in chosen),
        what=tuple(_what(k) for k in chosen),
        target=where,
        notes=tuple(notes),
    )


def _there(domain: Domain, here: Sequence[Known], word: str) -> Known:
    for known in here:
        function = known.vgpu.function if known.vgpu else ""
        if word in (known.hostdev.key, function, known.vgpu.uuid if known.vgpu else ""):
            return known
    raise _refuse("NOT_ATTACHED", f"VM {domain.name} has no device {word}", domain.name)


def _refuse(code: str, message: str, vm: str = "") -> BlockedError:
    error = BlockedError(
        message, next_step=f"aliquot libvirt check {quote(vm)}" if vm else "aliquot libvirt attach --help"
    )
    error.code = code
    return error
