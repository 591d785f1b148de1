"""Host of the agent: its GPU services and reboots, through systemd. A simulated node only has reboots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware import reboot as program
from aliquot.hardware.systemd.errors import NoSystemdError
from aliquot.hardware.systemd.units import StoppedServices
from aliquot.sim.host import SimHost


class HostServices:
    """The services of a host, whose root directory is mounted at ``root``; ``simulated`` is a simulated host."""

    def __init__(self, root: str, simulated: SimHost | None) -> None:
        self._root = root or "/"
        self._simulated = simulated

    async def stop(
        self, services: tuple[str, ...], save: Callable[[StoppedServices], None], earlier: StoppedServices | None
    ) -> None:
        """Stop services; ``save`` returns before the first one stops. Raises AliquotError."""
        from aliquot.hardware.systemd.services import Services  # and D-Bus: most nodes never need it

        stopped = await Services(self._root).stop(services, save, earlier)
        log.info("stopped on the host: %s", ", ".join(stopped.names) or "nothing, none of them is running")

    async def start(self, stopped: StoppedServices) -> None:
        """Start the services of a record again. Raises AliquotError that names those that do not start."""
        from aliquot.hardware.systemd.services import Services

        for note in await Services(self._root).start(stopped):
            log.info("%s", note)

    async def reboot(self) -> None:
        """Request a reboot and return once it is accepted. Raises AliquotError if it is refused."""
        if self._simulated is not None:
            await asyncio.to_thread(self._simulated.reboot)
            return
        from aliquot.hardware.systemd import power

        try:
            who = await power.reboot(self._root)
        except NoSystemdError as error:
            log.info("%s: rebooting with the host's own program", error.brief)
            who = await asyncio.to_thread(program.reboot, self._root)
        log.info("%s reboots the host", who)
