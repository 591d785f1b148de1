"""Carrying out an attach or a detach: device by device, read back, undone as a whole where one fails."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote

from aliquot.core.engine.ports import Clock
from aliquot.errors import AliquotError
from aliquot.foundation.signals import whole
from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt.attach import Change, Target
from aliquot.libvirt.errors import LibvirtError
from aliquot.libvirt.models import Domain, Hostdev
from aliquot.libvirt.port import Libvirt

RELEASE_S = 30.0
"""How long a guest may take to let a device go that is taken from it while it runs."""

Say = Callable[[str], None]


def attach(libvirt: Libvirt, change: Change, say: Say = lambda _: None) -> None:
    """All of them or none. Raises what libvirt said of the one that failed; those before it are detached again. A
    signal takes effect between two of them.
    """
    done: list[Hostdev] = []
    try:
        for hostdev, what in zip(change.devices, change.what, strict=True):
            with whole():
                libvirt.attach(change.uuid, xml.build(hostdev), live=change.target.live, config=change.target.config)
                done.append(hostdev)
            say(f"attached {what} ({hostdev.shown}) to {change.vm}")
        _prove(libvirt, change, there=True)
    except BaseException as error:
        _undo(libvirt, change, done, error)
        raise


def _undo(libvirt: Libvirt, change: Change, done: list[Hostdev], error: BaseException) -> None:
    """Takes back what was attached, last first, and says on the error what came of it."""
    told: list[str] = []
    for hostdev in reversed(done):
        try:
            libvirt.detach(change.uuid, xml.build(hostdev), live=change.target.live, config=change.target.config)
            told.append(f"{hostdev.shown} was attached before that, and is detached again")
        except AliquotError as second:
            told.append(f"{hostdev.shown} stays attached: {second.brief}")
    if isinstance(error, AliquotError):
        error.details = (*error.details, *told)
        error.next_step = error.next_step or f"aliquot libvirt check {quote(change.vm)}"


def detach(libvirt: Libvirt, change: Change, clock: Clock, say: Say = lambda _: None) -> None:
    """One after the other; what is detached stays so where a later one fails. Waits, bounded, for the guest to let go
    of what it has. Raises LibvirtError where it does not.
    """
    for hostdev, what in zip(change.devices, change.what, strict=True):
        libvirt.detach(change.uuid, hostdev.text, live=change.target.live, config=change.target.config)
        say(f"detached {what} ({hostdev.shown}) from {change.vm}")
    deadline = clock.now() + RELEASE_S
    while change.target.live and _left(libvirt.domain(change.uuid), change) and clock.now() < deadline:
        clock.sleep(0.2)
    _prove(libvirt, change, there=False)


def _left(domain: Domain, change: Change) -> list[Hostdev]:
    keys = {h.key for h in domain.live}
    return [h for h in change.devices if h.key in keys]


def _prove(libvirt: Libvirt, change: Change, *, there: bool) -> None:
    """Reads the machine back. Raises LibvirtError for what is not as it should be."""
    domain = libvirt.domain(change.uuid)
    wrong = [
        f"{hostdev.shown} is {'not ' if there else 'still '}in the {side}"
        for side, found in _sides(domain, change.target)
        for hostdev in change.devices
        if (hostdev.key in {h.key for h in found}) is not there
    ]
    if not wrong:
        return
    error = LibvirtError(
        f"libvirt took the change of VM {change.vm}, and it did not happen"
        if there
        else f"the guest of VM {change.vm} has not let go",
        details=tuple(wrong),
        next_step=f"aliquot libvirt check {quote(change.vm)}",
    )
    error.code = "NOT_DONE"
    raise error


def _sides(domain: Domain, target: Target) -> list[tuple[str, tuple[Hostdev, ...]]]:
    sides = [("definition", domain.config)] if target.config else []
    return sides + ([("running machine", domain.live)] if target.live else [])
