"""Binding a function to vfio-pci together with the rest of its board and IOMMU group, and restoring their drivers."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress

from aliquot.core.engine.ports import Clock
from aliquot.core.model.inventory import IommuGroupPeer
from aliquot.errors import AliquotError, BlockedError, HardwareError, InUseError
from aliquot.foundation.backoff import Backoff
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel.errors import CLIENTS, kernel_file_error
from aliquot.hardware.kernel.sysfs import read_optional
from aliquot.hardware.kernel.vendor_vfio import vfio_devices
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel_files import KernelFiles

LOCK_S = 10.0
_LOCK_POLL = Backoff(first=0.1, longest=1.0)
_STUB = ("", bus.VFIO, "pci-stub", "pcieport")
"""Drivers of other group members with which VFIO still assigns a group to a VM: none, vfio-pci, stubs, ports."""


class GroupError(BlockedError):
    """The IOMMU group contains devices that cannot be passed through with the GPU."""

    code = "IOMMU_GROUP"


class NoIommuError(BlockedError):
    """Passthrough is not possible without an IOMMU."""

    code = "NO_IOMMU"


def companions(files: KernelFiles, pci: str) -> tuple[bus.Member, ...]:
    """Return the functions that must be bound together with a function: the rest of its IOMMU group, if it is on the
    same board (audio, USB). Raises NoIommuError, and GroupError with the foreign devices.
    """
    group = bus.group(files, pci)
    if group is None:
        raise NoIommuError(
            f"{pci} has no IOMMU group: the IOMMU is off",
            next_step="enable it in the firmware and with intel_iommu=on (AMD: amd_iommu=on), then reboot",
        )
    own, foreign = _split_group(files, pci, group)
    if foreign:
        raise GroupError(
            f"{pci} shares IOMMU group {group} with devices of other boards",
            details=tuple(f"{m.pci} (driver {m.driver})" for m in foreign),
            next_step=f"move the GPU to another slot, or unbind those devices; see aliquot passthrough check {pci}",
        )
    return own


def group_peers(files: KernelFiles, pci: str, group: int | None) -> tuple[IommuGroupPeer, ...]:
    """Return the devices because of which ``companions`` refuses; none without an IOMMU group."""
    return () if group is None else tuple(IommuGroupPeer(m.pci, m.driver) for m in _split_group(files, pci, group)[1])


def _split_group(files: KernelFiles, pci: str, group: int) -> tuple[tuple[bus.Member, ...], tuple[bus.Member, ...]]:
    """Return the rest of a function's IOMMU group: what is bound together with it, and what is foreign."""
    others = [m for p in bus.members(files, group) if p != pci and not (m := bus.member(files, p)).bridge]
    own = tuple(m for m in others if m.nvidia and same_board(files, pci, m.pci))
    return own, tuple(m for m in others if m not in own and m.driver not in _STUB)


def same_board(files: KernelFiles, pci: str, other: str) -> bool:
    """Return whether two functions are on one board and are bound together. A virtual function is bound alone: without
    isolation by the platform, its group contains its GPU and the other functions, which carry vGPUs.
    """
    alone = any(files.exists(bus.attribute(each, "physfn")) for each in (pci, other))
    return bus.slot(pci) == bus.slot(other) and not alone


def acquire_unbind_lock(files: KernelFiles, clock: Clock, pci: str) -> bool:
    """Ask NVIDIA's driver to release a GPU, which it grants if no client has it open. Return whether the driver has
    such a lock. Raises InUseError. Unbinding without the lock waits inside the kernel for the last client.
    """
    path = f"/proc/driver/nvidia/gpus/{pci}/unbindLock"
    if not files.exists(path):
        return False
    deadline, tries = clock.now() + LOCK_S, 0
    while True:
        try:
            files.write(path, "1")
        except OSError as failure:
            if failure.errno not in (errno.EBUSY, errno.EAGAIN):
                raise kernel_file_error(failure, f"locking {pci} against new clients", path) from failure
        if (read_optional(files, path) or "").endswith("1"):
            return True
        if clock.now() + _LOCK_POLL.pause(tries + 1) > deadline:
            raise InUseError(
                f"{pci} is in use: a client has it open, so its driver cannot be unbound",
                details=(f"{path} is not granted", CLIENTS),
                next_step=f"see who holds it with aliquot show {pci}, end that work, then run the command again",
            )
        tries += 1
        clock.sleep(_LOCK_POLL.pause(tries))


def bind_to_vfio(files: KernelFiles, clock: Clock, pci: str, others: Sequence[str]) -> None:
    """Bind a function and its companions to vfio-pci: all or none. Raises BlockedError without that driver, InUseError,
    HardwareError, PermissionDeniedError.
    """
    if not files.exists(f"{bus.DRIVERS}/{bus.VFIO}"):
        raise BlockedError(
            "the driver vfio-pci is not loaded",
            code="NO_VFIO",
            next_step=f"modprobe vfio-pci, then: aliquot passthrough enable {pci}",
        )
    before = {each: bus.driver(files, each) for each in (pci, *others)}
    locked = before[pci] == "nvidia" and acquire_unbind_lock(files, clock, pci)
    attempted: list[str] = []
    try:
        for each in (*others, pci):
            attempted.append(each)
            _bind(files, each, bus.VFIO)
    except AliquotError:
        for each in reversed(attempted):
            with suppress(AliquotError):
                _bind(files, each, before[each])
        if locked and bus.driver(files, pci) == "nvidia":
            with suppress(OSError):
                files.write(f"/proc/driver/nvidia/gpus/{pci}/unbindLock", "0")
        raise


def restore_drivers(files: KernelFiles, pci: str, drivers: Mapping[str, str | None]) -> None:
    """Bind a function and its companions to the drivers that they had; None stands for any that accepts it. Raises
    InUseError while a VM has one open, else the first failure, after the others were bound.
    """
    holders = Holders(files)
    on_vfio = [each for each in drivers if bus.driver(files, each) == bus.VFIO]
    found = [str(h) for each in on_vfio for h in holders.of(vfio_devices(files, each))]
    if found:
        raise InUseError(
            f"{pci} is open in {', '.join(dict.fromkeys(found))}",
            next_step="shut that VM down, or detach the GPU from it, then run the command again",
        )
    failures = []
    for each in (pci, *(p for p in drivers if p != pci)):
        try:
            _bind(files, each, drivers[each])
        except AliquotError as failure:
            failures.append(failure)
    if failures:
        raise failures[0]


def _bind(files: KernelFiles, pci: str, wanted: str | None) -> None:
    attempt = f"binding {pci} to {wanted or ('no driver' if wanted == '' else 'a driver')}"
    try:
        bus.rebind(files, pci, wanted)
        current = bus.driver(files, pci)
    except OSError as failure:
        meaning = {errno.EINVAL: "the driver does not accept it", errno.ENODEV: "no driver accepts it"}
        raise kernel_file_error(failure, attempt, f"{bus.DEVICES}/{pci}", meaning) from failure
    if current != wanted and (wanted is not None or current == bus.VFIO):
        raise HardwareError(
            f"{attempt} failed: it is bound to {current or 'no driver'}",
            details=(f"{bus.DEVICES}/{pci}/driver",),
            next_step="check the kernel log (dmesg | grep -i vfio), then run: aliquot show",
        )
