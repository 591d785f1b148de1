"""Carrying out an attach or a detach: device by device, read back, undone as a whole where one fails."""

from __future__ import annotations

from shlex import quote

from aliquot.core.engine.ports import Clock
from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report
from aliquot.foundation.signals import uninterrupted
from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt.attach import AttachTarget, DeviceChange
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import Hostdev, LibvirtDomain
from aliquot.libvirt.port import Libvirt

RELEASE_S = 30.0
"""How long a guest may take to let a device go that is taken from it while it runs."""


def attach(libvirt: Libvirt, change: DeviceChange, report: Report = lambda _: None) -> None:
    """All of them or none. Raises what libvirt said of the one that failed; those before it are detached again. A
    signal takes effect between two of them.
    """
    attached: list[Hostdev] = []
    try:
        for hostdev, description in zip(change.devices, change.descriptions, strict=True):
            with uninterrupted():
                libvirt.attach(change.uuid, xml.build(hostdev), live=change.target.live, config=change.target.config)
                attached.append(hostdev)
            report(f"attached {description} ({hostdev.shown}) to {change.vm}")
        _verify(libvirt, change, attached=True)
    except BaseException as error:
        _undo(libvirt, change, attached, error)
        raise


def _undo(libvirt: Libvirt, change: DeviceChange, attached: list[Hostdev], error: BaseException) -> None:
    """Takes back what was attached, last first, and says on the error what came of it."""
    outcomes: list[str] = []
    for hostdev in reversed(attached):
        try:
            libvirt.detach(change.uuid, xml.build(hostdev), live=change.target.live, config=change.target.config)
            outcomes.append(f"{hostdev.shown} was attached before that, and is detached again")
        except AliquotError as second:
            outcomes.append(f"{hostdev.shown} stays attached: {second.brief}")
    if isinstance(error, AliquotError):
        error.details = (*error.details, *outcomes)
        error.next_step = error.next_step or f"aliquot libvirt check {quote(change.vm)}"


def detach(libvirt: Libvirt, change: DeviceChange, clock: Clock, report: Report = lambda _: None) -> None:
    """One after the other; what is detached stays so where a later one fails. Waits, bounded, for the guest to let go
    of what it has. Raises LibvirtError where it does not.
    """
    for hostdev, description in zip(change.devices, change.descriptions, strict=True):
        libvirt.detach(change.uuid, hostdev.text, live=change.target.live, config=change.target.config)
        report(f"detached {description} ({hostdev.shown}) from {change.vm}")
    deadline = clock.now() + RELEASE_S
    while change.target.live and _still_attached(libvirt.domain(change.uuid), change) and clock.now() < deadline:
        clock.sleep(0.2)
    _verify(libvirt, change, attached=False)


def _still_attached(domain: LibvirtDomain, change: DeviceChange) -> list[Hostdev]:
    keys = {h.key for h in domain.live}
    return [h for h in change.devices if h.key in keys]


def _verify(libvirt: Libvirt, change: DeviceChange, *, attached: bool) -> None:
    """Reads the machine back. Raises LibvirtError for what is not as it should be."""
    domain = libvirt.domain(change.uuid)
    differences = [
        f"{hostdev.shown} is {'not ' if attached else 'still '}in the {side}"
        for side, found in _sides(domain, change.target)
        for hostdev in change.devices
        if (hostdev.key in {h.key for h in found}) is not attached
    ]
    if not differences:
        return
    error = LibvirtError(
        f"libvirt took the change of VM {change.vm}, and it did not happen"
        if attached
        else f"the guest of VM {change.vm} has not let go",
        details=tuple(differences),
        next_step=f"aliquot libvirt check {quote(change.vm)}",
    )
    error.code = "NOT_DONE"
    raise error


def _sides(domain: LibvirtDomain, target: AttachTarget) -> list[tuple[str, tuple[Hostdev, ...]]]:
    sides = [("definition", domain.config)] if target.config else []
    return sides + ([("running machine", domain.live)] if target.live else [])
