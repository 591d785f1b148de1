"""Attach and detach devices: one device at a time, verified afterwards. A failed attach is undone as a whole."""

from __future__ import annotations

from collections.abc import Callable
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
"""Time in seconds for a running guest to release a device that is detached from it."""


def attach(
    libvirt: Libvirt,
    change: DeviceChange,
    report: Report = lambda _: None,
    on_stay: Callable[[Hostdev], None] = lambda _: None,
) -> None:
    """Attach all devices or none. If one fails, raise libvirt's error and detach the earlier ones. A signal takes
    effect between two devices. ``on_stay`` receives each device that could not be detached again.
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
        _undo(libvirt, change, attached, error, on_stay)
        raise


def _undo(
    libvirt: Libvirt,
    change: DeviceChange,
    attached: list[Hostdev],
    error: BaseException,
    on_stay: Callable[[Hostdev], None],
) -> None:
    """Detach what was attached, last first, and add the outcome to the error."""
    outcomes: list[str] = []
    for hostdev in reversed(attached):
        try:
            libvirt.detach(change.uuid, xml.build(hostdev), live=change.target.live, config=change.target.config)
            outcomes.append(f"{hostdev.shown} was attached before the error, and is detached again")
        except AliquotError as second:
            on_stay(hostdev)
            outcomes.append(f"{hostdev.shown} stays attached: {second.brief}")
    if isinstance(error, AliquotError):
        error.details = (*error.details, *outcomes)
        error.next_step = error.next_step or f"aliquot libvirt check {quote(change.vm)}"


def detach(libvirt: Libvirt, change: DeviceChange, clock: Clock, report: Report = lambda _: None) -> None:
    """Detach the devices one by one. If one fails, the earlier ones stay detached. Waits up to ``RELEASE_S`` for the
    guest to release them, and raises LibvirtError if it does not.
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
    """Read the VM again. Raises LibvirtError if a device is not in the expected state."""
    domain = libvirt.domain(change.uuid)
    differences = [
        f"{hostdev.shown} is {'not ' if attached else 'still '}in the {side}"
        for side, found in _sides(domain, change.target)
        for hostdev in change.devices
        if (hostdev.key in {h.key for h in found}) is not attached
    ]
    if not differences:
        return
    raise LibvirtError(
        f"libvirt accepted the change of VM {change.vm}, but it had no effect"
        if attached
        else f"the guest of VM {change.vm} has not released the device",
        details=tuple(differences),
        next_step=f"aliquot libvirt check {quote(change.vm)}",
        code="NOT_DONE",
    )


def _sides(domain: LibvirtDomain, target: AttachTarget) -> list[tuple[str, tuple[Hostdev, ...]]]:
    sides = [("definition", domain.config)] if target.config else []
    return sides + ([("running VM", domain.live)] if target.live else [])
