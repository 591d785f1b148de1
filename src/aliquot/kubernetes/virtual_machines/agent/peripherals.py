"""The host's USB devices and network ports: their observation, and the numbers of virtual functions that are set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.peripherals import Peripherals
from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.network_ports import scan_ports, set_functions
from aliquot.hardware.kernel.sysfs import list_names, read_optional
from aliquot.hardware.kernel.usb_scan import DEVICES, scan_usb
from aliquot.kubernetes.virtual_machines.agent.retry_state import RetryTracker, error_result
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.peripherals.network_devices import requests

if TYPE_CHECKING:
    from aliquot.hardware.kernel_files import KernelFiles

WATCH_S = 2.0
"""How often the list of USB devices is compared, in seconds: what is plugged in or out causes a round."""


class HostPeripherals:
    """The peripherals of this host.

    ``bus`` opens the kernel's files; it runs on a worker thread. ``addresses`` returns the IP addresses by which the
    cluster reaches the node.
    """

    def __init__(self, bus: Callable[[], KernelFiles], addresses: Callable[[], Sequence[str]]) -> None:
        self._open_bus = bus
        self._addresses = addresses
        self._files: KernelFiles | None = None
        self._attempts = RetryTracker()
        self._digests: dict[str, str] = {}

    async def read(self) -> Peripherals:
        """Read the devices. Raise HardwareError if they cannot be read: an empty result would delete every object."""
        return await asyncio.to_thread(self._read)

    async def apply(self, view: NodeView, objects: Objects) -> bool:
        """Set the numbers of virtual functions that are due. Return whether anything was tried.

        A refusal of the hardware is not raised: it is in ``results``. The ports are read again before a change: a port
        may have become the host's uplink since the observation. Raises HardwareError if they cannot be read.
        """
        tried, wanted = False, requests(view, objects)
        self._digests = {each.address: each.digest for each in wanted}
        self._attempts.retain(self._digests)
        for each in wanted:
            if not self._attempts.is_due(each.address, each.digest, time.monotonic()):
                continue
            tried = True
            if each not in requests(msgspec.structs.replace(view, peripherals=await self.read()), objects):
                continue
            try:
                await asyncio.to_thread(set_functions, self._bus(), each.address, each.count)
            except AliquotError as error:
                pause = self._attempts.record_failure(each.address, error_result(error, each.digest), time.monotonic())
                log.error("%s: next attempt in %.0f s", error.brief, pause)
            else:
                self._attempts.record_success(each.address, each.digest, time.monotonic())
                log.info("network port %s has %d virtual functions", each.address, each.count)
        return tried

    @property
    def results(self) -> Mapping[str, Result]:
        """The last failures, by the PCI addresses of the ports."""
        found = {address: self._attempts.result(address, digest) for address, digest in self._digests.items()}
        return {address: result for address, result in found.items() if result is not None}

    @property
    def wait_s(self) -> float | None:
        """Seconds until a failed attempt is due again; None without one."""
        return self._attempts.next_due_s(self._digests, time.monotonic())

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever a USB device was plugged in or out. Run until cancelled."""
        known: tuple[tuple[str, str], ...] | None = None
        while True:
            try:
                found = await asyncio.to_thread(self._numbers)
            except OSError:
                found = ()  # the next round reports what cannot be read
            if known is not None and found != known:
                changed()
            known = found
            await asyncio.sleep(WATCH_S)

    def _numbers(self) -> tuple[tuple[str, str], ...]:
        """Return the devices' ports and numbers: one that was plugged out and in has the same port, but another
        number.
        """
        files = self._bus()
        names = sorted(list_names(files, DEVICES))
        return tuple((name, read_optional(files, f"{DEVICES}/{name}/devnum") or "") for name in names)

    def _read(self) -> Peripherals:
        files = self._bus()
        addresses = self._addresses()
        return Peripherals(scan_usb(files, None, addresses), scan_ports(files, addresses))

    def _bus(self) -> KernelFiles:
        if self._files is None:
            self._files = self._open_bus()
        return self._files
