"""The libvirt VMs of one node: polling, and attaching and detaching devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.engine.history import EndStatus
from aliquot.dashboard.change_requests import AttachDevices, DetachDevices
from aliquot.dashboard.local import libvirt_rows as guests
from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, VirtualizationView, VmRow
from aliquot.errors import AliquotError, LockedError
from aliquot.foundation.callbacks import Report

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.libvirt.device_rules import VmContext
    from aliquot.libvirt.models import Hostdev
    from aliquot.libvirt.port import Libvirt

WATCHED_S = 5.0
UNWATCHED_S = 60.0


class LibvirtVms:
    """The VMs of one host. ``why_not`` says why nothing can be attached now, "" if libvirt answers."""

    def __init__(self, access: NodeAccess, address: Address) -> None:
        self.why_not = "libvirt was not queried yet."
        self._access = access
        self._address = address
        self._rows: tuple[VmRow, ...] = ()
        self._missing = ""
        self._threads = Threads(1, "libvirt")

    # -- polling

    async def run(self, state: FleetState) -> None:
        """Poll libvirt forever, and update open pages when the VMs change."""
        try:
            while True:
                known = await self.refresh(state)
                await state.pause(WATCHED_S, UNWATCHED_S if known else WATCHED_S)
        finally:
            self._threads.close()

    async def refresh(self, state: FleetState) -> bool:
        """Query libvirt now. Return False if the node was not observed yet, because its inventory is needed."""
        inventory = state.node_view(self._access.name).inventory
        if inventory is None:
            return False
        previous = self._rows, self._missing
        await self._threads.run(lambda: self._read_rows(inventory))
        if (self._rows, self._missing) != previous:
            state.mark_changed()
        return True

    def _read_rows(self, inventory: Inventory) -> None:
        try:
            with self._opened() as libvirt:
                self._rows = guests.vm_rows(inventory, self._around(libvirt, inventory))
            self.why_not = self._missing = ""
        except AliquotError as error:
            step = f" ({error.next_step})" if error.next_step else ""
            self.why_not = self._missing = f"The VMs of libvirt cannot be read: {error.brief}{step}"
            self._rows = ()

    @contextmanager
    def _opened(self) -> Iterator[Libvirt]:
        from aliquot.libvirt.connect import open_libvirt

        with open_libvirt() as libvirt:
            yield libvirt

    def _around(self, libvirt: Libvirt, inventory: Inventory) -> VmContext:
        from aliquot.libvirt.related_devices import read_context

        return read_context(libvirt, inventory, libvirt.domains(), "nvidia", lambda _: None)

    def with_vms(self, virtual: VirtualizationView) -> VirtualizationView:
        """Add the VMs to a node's view."""
        absent = (self._missing,) if self._missing else ()
        return msgspec.structs.replace(virtual, vms=self._rows, no_vms=absent)

    # -- changing

    def preview(self, request: AttachDevices | DetachDevices) -> ChangePreview:
        """Preview a change, in a worker thread. Raises AliquotError if it is invalid or libvirt does not answer."""
        with self._opened() as libvirt:
            inventory = self._access.observe().inventory
            return guests.preview(request, inventory, self._around(libvirt, inventory), self._address)

    def execute(self, vm_change: guests.VmChange, report: Report) -> ChangeOutcome:
        """Execute a change, in a worker thread. The node's lock prevents concurrent choices and changes of vGPUs."""
        from aliquot.libvirt import apply as applying

        touched = False
        stays: list[Hostdev] = []

        def report_line(line: str) -> None:
            nonlocal touched
            touched = True
            report(line)

        try:
            with self._opened() as libvirt, self._access.opened() as connection, connection.lock.hold():
                inventory = connection.backend.read()
                now = guests.preview(vm_change.request, inventory, self._around(libvirt, inventory), self._address)
                if (
                    not isinstance(now.secret, guests.VmChange)
                    or now.secret.change != vm_change.change
                    or now.obstacles
                ):
                    return ChangeOutcome.refused(
                        "the VM or its devices changed since the preview.",
                        tuple(o.message for o in now.obstacles),
                        "MOVED",
                        "request the change again",
                    )
                if isinstance(vm_change.request, AttachDevices):
                    applying.attach(libvirt, vm_change.change, report_line, stays.append)
                else:
                    applying.detach(libvirt, vm_change.change, connection.clock, report_line)
        except AliquotError as error:
            return self._failed(vm_change, error, touched, stays)
        return ChangeOutcome.done(f"{_ended(vm_change)}. Verified by reading the VM again.", vm_change.change.notes)

    def _failed(
        self, vm_change: guests.VmChange, error: AliquotError, touched: bool, attached: Sequence[Hostdev]
    ) -> ChangeOutcome:
        """Describe a failure. ``attached`` are the devices that could not be detached again."""
        step = self._address(error.next_step, vm_change.node) if error.next_step else ""
        if not touched or isinstance(error, LockedError):
            return ChangeOutcome.refused(error.brief, error.details, error.code, step)
        stays = isinstance(vm_change.request, DetachDevices) or bool(attached)
        status: EndStatus = "partial" if stays else "undone"
        end = "not everything could be reverted" if stays else "the attached devices were detached again"
        return ChangeOutcome(status, f"Failed, and {end}: {error.brief}", error.details, error.code, step)


def _ended(vm_change: guests.VmChange) -> str:
    count = len(vm_change.change.devices)
    devices = "1 device" if count == 1 else f"{count} devices"
    verb = "attached to" if isinstance(vm_change.request, AttachDevices) else "detached from"
    return f"{devices} {verb} {vm_change.change.vm}"
