"""What the node's pieces are used for, looked at now and then beside the agent's own looks: no step depends on it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import GAP_S
from aliquot.errors import AliquotError, UsageError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.node_agent.pod_holders import Use, held_by_pods
from aliquot.node.usage_record import LOOK_S, UsageWatch

if TYPE_CHECKING:
    from aliquot.node.connect import Connection
    from aliquot.node.usage_record import Fill

DCGM = "ALIQUOT_DCGM"
EVERY = "ALIQUOT_USAGE_SECONDS"
T = TypeVar("T")
Uses = Callable[[], Awaitable[Sequence[Use]]]


class Gpus(Protocol):
    """The GPUs as an agent has them open (``Hardware``)."""

    @property
    def answers(self) -> bool:
        """Whether the driver answered when it was last asked."""
        ...

    async def call(self, job: Callable[[Connection], T]) -> T: ...


def held_now(connection: Connection, uses: Sequence[Use]) -> Inventory:
    """A fresh look, with what pods have held, by kubelet's word."""
    return held_by_pods(connection.backend.read(), uses)


class Using:
    """``uses`` asks kubelet which pods have what, None where there is none. ``held`` tells the GPUs with who holds
    them; ``told`` gets each look: these, and what they are used for. ``every_s`` 0: nobody looks.
    """

    def __init__(
        self,
        hardware: Gpus,
        uses: Uses | None,
        told: Callable[[Inventory, tuple[Usage, ...]], None],
        every_s: float = LOOK_S,
        held: Callable[[Connection, Sequence[Use]], Inventory] = held_now,
    ) -> None:
        self._hardware = hardware
        self._uses = uses
        self._told = told
        self._every_s = every_s
        self._held = held
        self._fill = _exporter()
        self._watch: UsageWatch | None = None
        self._problem = ""
        self._last: tuple[float, Inventory] | None = None

    async def run(self) -> None:
        """For ever. A driver that does not answer is the agent's own looks' to find out, and to open anew."""
        while True:
            await asyncio.sleep(self._every_s or LOOK_S)
            if self._every_s and self._hardware.answers:
                await self.look()

    async def look(self) -> None:
        """One look. What cannot be read is logged once, and the last look stands as long as watching may pause: then
        nothing is told, for nobody could see that it is old.
        """
        try:
            uses = await self._uses() if self._uses is not None else ()
            found = await self._hardware.call(lambda connection: self._look(connection, uses))
            if isinstance(found, AliquotError):
                raise found
            self._told(*found)
        except AliquotError as error:
            self._failed(error.brief)
        except Exception as error:  # noqa: BLE001 -- a defect of ours must not end the looks for as long as the agent lives
            self._failed(
                f"internal fault, report it with the output of aliquot version: {type(error).__name__}: {error}"
            )
        else:
            self._problem = ""
            self._last = time.monotonic(), found[0]

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("what the GPUs are used for is not known: %s", problem)
        self._problem = problem
        if self._last is not None and time.monotonic() - self._last[0] > GAP_S:
            self._told(self._last[1], ())
            self._last = None

    def _look(self, connection: Connection, uses: Sequence[Use]) -> tuple[Inventory, tuple[Usage, ...]] | AliquotError:
        """On the worker's thread. An error is handed back: it must not cost the agent its session."""
        try:
            if self._watch is None:
                self._watch = UsageWatch(connection, fill=self._fill)
            inventory = self._held(connection, uses)
            return inventory, self._watch.look(connection, inventory)
        except AliquotError as error:
            return error

    async def close(self) -> None:
        """Writes down what was seen, for whoever comes next."""
        if self._watch is not None:
            await asyncio.to_thread(self._watch.save)


def every_s(environment: dict[str, str]) -> float:
    """Seconds between two looks, 0 for none: ``ALIQUOT_USAGE_SECONDS``. Raises UsageError for what is none."""
    text = environment.get(EVERY, "")
    try:
        seconds = float(text) if text else LOOK_S
    except ValueError:
        seconds = -1.0
    if seconds and not 10 <= seconds <= 120:
        raise UsageError(f"{EVERY}={text}: seconds from 10 to 120, or 0 for never", next_step=f"unset {EVERY}")
    return seconds


def _exporter() -> Fill | None:
    url = os.environ.get(DCGM, "")
    if not url:
        return None
    from aliquot.node.dcgm_exporter import Exporter

    return Exporter(url, log.warning).fill
