"""Making and ending one vGPU, recorded in the owner map before the act. What is open or another's is not touched."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from aliquot.core.engine.ports import Clock
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.errors import AliquotError, BlockedError, HardwareError, InUseError, StorageError
from aliquot.foundation.backoff import Backoff
from aliquot.hardware.kernel import framework_detection as worlds
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.errors import refused
from aliquot.hardware.kernel.framework import MDEV, Found, World
from aliquot.hardware.kernel.mig_backed import chosen
from aliquot.hardware.kernel.reader import uuid_of
from aliquot.hardware.kernel.sysfs import Malformed
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel.vgpu_owners import Book, Owner, Owners, claim
from aliquot.hardware.kernel_files import Files

_SETTLE_S = 5.0
"""How long a vGPU that was ended may still show: the kernel unregisters it after the write has returned."""
_GONE_POLL = Backoff(first=0.01, longest=0.5)

_REFUSED = {
    errno.EIO: "the driver refused it",
    errno.EINVAL: "the driver does not make that here (another size, another mode, or a function that is taken)",
    errno.ENOSPC: "there is no room left for another one of that type",
    errno.ENOENT: "this function does not know that type",
    errno.EEXIST: "a vGPU of this UUID exists already",
    errno.EBUSY: "its VFIO handle is open in a virtual machine",
    errno.EPERM: "the driver does not allow it in this mode",
}


class Vgpus:
    """The vGPUs of one machine's GPUs."""

    def __init__(self, files: Files, owners: Owners, boot: Callable[[], str], clock: Clock) -> None:
        self._files = files
        self._owners = owners
        self._boot = boot
        self._clock = clock

    def create(self, gpu: Gpu, table: VgpuTable | None, function: str, type_id: int, uuid: str) -> None:
        """Raises InUseError when something is on the function by now, BlockedError without a vGPU driver."""
        world = self._world(gpu.pci, function)
        attempt = f"creating vGPU type {type_id} on {function}"
        there = self._inspect(world, function)
        if any(found.uuid == uuid for found in there) or (there and world.name != MDEV):
            raise InUseError(
                f"{attempt} failed: it carries a vGPU of type {there[0].type_id} by now",
                next_step=f"aliquot show {gpu.pci}",
            )
        owner = self._owner(gpu, table, function, type_id, uuid)
        self._owners.change(lambda book: self._adopted(book, gpu).with_owner(owner))
        path = world.path(function, type_id)
        try:
            world.create(function, type_id, uuid)
            made = self._inspect(world, function)
        except OSError as failure:
            self._forget_unless_there(world, owner)
            raise refused(failure, attempt, path, _REFUSED) from failure
        if not any(owner.carries(found) for found in made):
            self._forget_unless_there(world, owner)
            raise HardwareError(
                f"{attempt} failed: the kernel took it, and shows no such vGPU",
                details=(path,),
                next_step="look for NVRM messages in the kernel log (dmesg | grep -i nvrm), then run: aliquot show",
            )

    def destroy(self, gpu: Gpu, function: str, type_id: int, uuid: str, token: str) -> None:
        """Raises InUseError when it is open, or is another by now; HardwareError when it is gone."""
        world = self._world(gpu.pci, function)
        attempt = f"destroying vGPU {uuid or f'type {type_id}'} on {function}"
        there = self._inspect(world, function)
        found = next((f for f in there if f.uuid in ("", uuid)), None)
        if found is None and function != gpu.pci:
            found = next(iter(there), None)
        if found is None:
            raise HardwareError(f"{attempt} failed: it is not there any more", next_step=f"aliquot show {gpu.pci}")
        self._compare(gpu, found, (type_id, uuid, token), attempt)
        holders = Holders(self._files).of(found.devices)
        if holders:
            raise InUseError(
                f"{attempt} failed: it is open in {', '.join(map(str, holders))}",
                next_step="shut that virtual machine down, or detach the vGPU from it, then run the command again",
            )
        try:
            world.destroy(found)
            self._wait_gone(world, found, attempt)
        except OSError as failure:
            raise refused(failure, attempt, world.path(function, type_id), _REFUSED) from failure
        self._owners.change(lambda book: book.without(o for o in book.vgpus if o.carries(found)))

    def _compare(self, gpu: Gpu, found: Found, wanted: tuple[int, str, str], attempt: str) -> None:
        """Compare what lies there with what the caller means. Raises InUseError; StorageError where the map does not
        tell.
        """
        book, fault = self._owners.load()
        if fault:
            path = self._owners.damaged or self._owners.path
            raise StorageError(
                f"{attempt} was not tried: {fault}",
                next_step=f"look at it, move it away (mv {path} {path}.old), then run again: what runs is adopted",
            )
        owner = book.owner(found, self._boot())
        there = uuid_of(gpu, found, self._number(gpu.pci, found.function), owner)
        type_id, uuid, token = wanted
        if (found.type_id, there, owner.claim if owner else "") != (type_id, uuid or there, token):
            raise InUseError(
                f"{attempt} failed: another vGPU lies there by now (type {found.type_id})",
                details=("its owner is not the one that was meant: it is not touched",),
                next_step=f"aliquot show {gpu.pci}",
            )

    def _world(self, pci: str, function: str) -> World:
        try:
            world = worlds.world(self._files, pci, [function] if function != pci else [], function != pci)
        except OSError as failure:
            raise refused(failure, f"looking at {function}", function) from failure
        if world is None:
            raise BlockedError(
                f"{function} offers no vGPU: no vGPU driver is at work there", next_step=f"aliquot vgpu types {pci}"
            )
        return world

    def _inspect(self, world: World, function: str) -> tuple[Found, ...]:
        try:
            return world.inspect(function)
        except Malformed as nonsense:
            raise HardwareError(str(nonsense), next_step="aliquot show") from nonsense

    def _owner(self, gpu: Gpu, table: VgpuTable | None, function: str, type_id: int, uuid: str) -> Owner:
        kind = None if table is None else table.by_id.get(type_id)
        return Owner(
            function=function,
            type_id=type_id,
            type=kind.name if kind is not None else "",
            uuid=uuid,
            claim=claim(),
            pci=gpu.pci,
            gpu=gpu.uuid,
            number=self._number(gpu.pci, function),
            gpu_instance=chosen(gpu, kind, table) if gpu.mig.enabled and table is not None else None,
            boot=self._boot(),
        )

    def _number(self, pci: str, function: str) -> int:
        if function == pci:
            return -1
        return next((link.number for link in sriov.links(self._files, pci) if link.pci == function), -1)

    def _adopted(self, book: Book, gpu: Gpu) -> Book:
        """The map after a look at one GPU: with an entry for each vGPU that is there, without those of this boot that
        are not (a kill came between record and act, or somebody else ended them).
        """
        boot = self._boot()
        live = {(v.function, v.type_id, v.uuid): v for v in gpu.vgpus}
        gone = [
            o for o in book.vgpus if o.pci == gpu.pci and o.boot == boot and (o.function, o.type_id, o.uuid) not in live
        ]
        book = book.without(gone)
        known = {(o.function, o.type_id, o.uuid) for o in book.vgpus if o.boot == boot}
        for key, each in live.items():
            if key not in known:
                adopted = Owner(
                    *(each.function, each.type_id, each.type, each.uuid, "", gpu.pci, gpu.uuid),
                    self._number(gpu.pci, each.function),
                    each.gpu_instance,
                    boot,
                )
                book = book.with_owner(adopted)
        return book

    def forget(self, gpu: Gpu) -> None:
        """Drop the entries of this boot: the GPU's virtual functions went, and every vGPU with them."""
        boot = self._boot()
        self._owners.change(lambda book: book.without(o for o in book.vgpus if o.pci == gpu.pci and o.boot == boot))

    def _forget_unless_there(self, world: World, owner: Owner) -> None:
        """A refused creation leaves no entry; one that took effect although it was refused keeps it."""
        with suppress(AliquotError, OSError):
            if not any(owner.carries(found) for found in world.inspect(owner.function)):
                self._owners.change(lambda book: book.without([owner]))

    def _wait_gone(self, world: World, found: Found, attempt: str) -> None:
        deadline, tries = self._clock.now() + _SETTLE_S, 0
        while any((f.type_id, f.uuid) == (found.type_id, found.uuid) for f in self._inspect(world, found.function)):
            if self._clock.now() > deadline:
                raise HardwareError(f"{attempt} had no effect: it is still there", next_step="aliquot show")
            tries += 1
            self._clock.sleep(_GONE_POLL.pause(tries))
