"""libvirt's virtual machines beside one node: looked at now and then, given devices and relieved of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from aliquot.dashboard.change_requests import Attach, Detach
from aliquot.dashboard.local import libvirt_rows as guests
from aliquot.dashboard.local.fleet_state import Board
from aliquot.dashboard.local.node_access import Spot
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.dashboard.ports import Tell
from aliquot.dashboard.view_models import Done, MachineRow, Preview, Virtual
from aliquot.errors import AliquotError, LockedError

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.libvirt.device_rules import Around
    from aliquot.libvirt.port import Libvirt

WATCHED_S = 5.0
ALONE_S = 60.0
URI = "LIBVIRT_DEFAULT_URI"
"""libvirt's own variable, which names another daemon than the system's."""


class Machines:
    """One host's. ``why_not`` says why nothing can be attached now, "" where libvirt answers."""

    def __init__(self, spot: Spot, address: Address) -> None:
        self.why_not = "libvirt was not asked yet."
        self._spot = spot
        self._address = address
        self._rows: tuple[MachineRow, ...] = ()
        self._missing = ""
        self._threads = Threads(1, "libvirt")

    # -- looking

    async def run(self, board: Board) -> None:
        """For ever. An answer that differs from the last one is news for whoever watches."""
        try:
            while True:
                known = await self.refresh(board)
                await board.pause(WATCHED_S, ALONE_S if known else WATCHED_S)
        finally:
            self._threads.close()

    async def refresh(self, board: Board) -> bool:
        """Asks libvirt now; whether it could be asked about anything: not before the node was looked at once."""
        inventory = board.look(self._spot.name).inventory
        if inventory is None:
            return False
        former = self._rows, self._missing
        await self._threads.run(lambda: self._ask(inventory))
        if (self._rows, self._missing) != former:
            board.moved()
        return True

    def _ask(self, inventory: Inventory) -> None:
        try:
            with self._opened() as libvirt:
                self._rows = guests.machines(inventory, self._around(libvirt, inventory))
            self.why_not = self._missing = ""
        except AliquotError as error:
            step = f" ({error.next_step})" if error.next_step else ""
            self.why_not = self._missing = f"No virtual machines of libvirt: {error.brief}{step}"
            self._rows = ()

    @contextmanager
    def _opened(self) -> Iterator[Libvirt]:
        from aliquot.libvirt.connect import opened

        with opened(os.environ.get(URI, ""), os.environ.get("ALIQUOT_LIBVIRT", "")) as libvirt:
            yield libvirt

    def _around(self, libvirt: Libvirt, inventory: Inventory) -> Around:
        from aliquot.libvirt.device_rules import NVIDIA
        from aliquot.libvirt.related_devices import around

        return around(libvirt, inventory, libvirt.domains(), NVIDIA, lambda _: None)

    def beside(self, virtual: Virtual) -> Virtual:
        """What the node has, and its machines."""
        absent = (self._missing,) if self._missing else ()
        return msgspec.structs.replace(virtual, machines=self._rows, no_machines=absent)

    # -- changing

    def preview(self, ask: Attach | Detach) -> Preview:
        """For a worker thread. Raises AliquotError for what is wrong everywhere, and where libvirt does not answer."""
        with self._opened() as libvirt:
            inventory = self._spot.look().inventory
            return guests.preview(ask, inventory, self._around(libvirt, inventory), self._address)

    def carry_out(self, guest: guests.Guest, tell: Tell) -> Done:
        """For a worker thread. No two of us pick at the same time, and nobody changes vGPUs meanwhile."""
        touched = False

        def told(line: str) -> None:
            nonlocal touched
            touched = True
            tell(line)

        try:
            with self._opened() as libvirt, self._spot.opened() as connection, connection.lock.hold():
                inventory = connection.backend.read()
                now = guests.preview(guest.ask, inventory, self._around(libvirt, inventory), self._address)
                if not isinstance(now.secret, guests.Guest) or now.secret.change != guest.change or now.obstacles:
                    sentence = "Nothing was changed: the machine or its devices changed since this was shown."
                    return Done("refused", sentence, tuple(o.message for o in now.obstacles), "MOVED", "ask again")
                self._carry(libvirt, guest, told, connection.clock)
        except AliquotError as error:
            return self._failed(guest, error, touched)
        return Done("done", f"Done: {guest.change.vm} {_ended(guest)}. Verified by a fresh look.", guest.change.notes)

    def _carry(self, libvirt: Libvirt, guest: guests.Guest, tell: Tell, clock: object) -> None:
        from aliquot.libvirt import apply as carry

        if isinstance(guest.ask, Attach):
            carry.attach(libvirt, guest.change, tell)
        else:
            carry.detach(libvirt, guest.change, clock, tell)  # type: ignore[arg-type]

    def _failed(self, guest: guests.Guest, error: AliquotError, touched: bool) -> Done:
        step = self._address(error.next_step, guest.node) if error.next_step else ""
        if not touched or isinstance(error, LockedError):
            return Done("refused", f"Nothing was changed: {error.brief}", error.details, error.code, step)
        stays = isinstance(guest.ask, Detach) or any("stays attached" in line for line in error.details)
        status, end = ("partial", "not all could be undone") if stays else ("undone", "what was attached is detached")
        return Done(status, f"It failed, and {end}: {error.brief}", error.details, error.code, step)


def _ended(guest: guests.Guest) -> str:
    count = len(guest.change.devices)
    devices = "1 device" if count == 1 else f"{count} devices"
    return f"has {devices} more" if isinstance(guest.ask, Attach) else f"has {devices} less"
