"""Sampler of the usage of a node's GPUs and instances, independent of the agent's reads. No step depends on it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.core.planner.usage_tracking import GAP_S
from aliquot.errors import AliquotError, UsageError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses, held_by_pods
from aliquot.node.usage_tracker import SAMPLE_S, UsageTracker, read_vgpus

if TYPE_CHECKING:
    from aliquot.node.connect import Connection
    from aliquot.node.usage_tracker import Fill

DCGM_VARIABLE = "ALIQUOT_DCGM"
INTERVAL_VARIABLE = "ALIQUOT_USAGE_SECONDS"
T = TypeVar("T")


class OpenGpus(Protocol):
    """The GPUs that an agent has open (``GpuWorker``)."""

    @property
    def answers(self) -> bool:
        """True if the driver answered the last call."""
        ...

    async def call(self, job: Callable[[Connection], T], *, all_gpus: bool = False) -> T: ...


def read_held_inventory(connection: Connection, uses: Sequence[PodDeviceUse]) -> Inventory:
    """Read the inventory, with pods as holders of the devices that kubelet allocated."""
    return held_by_pods(connection.backend.read(), uses)


class UsageSampler:
    """Sampler of usage.

    ``uses`` asks kubelet for the devices of pods; None without a kubelet. ``read_inventory`` returns the inventory with
    holders. ``on_sample`` is called with the inventory and the usage of each sample, ``on_vgpus`` with that of vGPUs.
    ``interval_s`` 0 disables it.
    """

    def __init__(
        self,
        hardware: OpenGpus,
        uses: Uses | None,
        on_sample: Callable[[Inventory, tuple[Usage, ...]], None],
        interval_s: float = SAMPLE_S,
        read_inventory: Callable[[Connection, Sequence[PodDeviceUse]], Inventory] = read_held_inventory,
        *,
        all_gpus: bool = False,
        on_vgpus: Callable[[tuple[VgpuUsage, ...]], None] = lambda _: None,
    ) -> None:
        self._hardware = hardware
        self._uses = uses
        self._on_sample = on_sample
        self._on_vgpus = on_vgpus
        self._interval_s = interval_s
        self._read_inventory = read_inventory
        self._all_gpus = all_gpus
        self._fill = _exporter()
        self._watch: UsageTracker | None = None
        self._problem = ""
        self._last: tuple[float, Inventory] | None = None

    async def run(self) -> None:
        """Sample forever. The agent's own reads detect a driver that does not answer, and reopen it."""
        while True:
            await asyncio.sleep(self._interval_s or SAMPLE_S)
            if self._interval_s and self._hardware.answers:
                await self.sample()

    async def sample(self) -> None:
        """Collect one sample.

        A failure is logged once, and the last sample stays valid for ``GAP_S`` seconds. After that, the usage is
        cleared, as readers could not see that it is outdated.
        """
        try:
            uses = await self._uses() if self._uses is not None else ()
            found = await self._hardware.call(
                lambda connection: self._read_sample(connection, uses), all_gpus=self._all_gpus
            )
            if isinstance(found, AliquotError):
                raise found
            inventory, usage, vgpus = found
            self._on_vgpus(vgpus)
            self._on_sample(inventory, usage)
        except AliquotError as error:
            self._failed(error.brief)
        except Exception as error:  # noqa: BLE001 -- a defect of Aliquot must not end the samples for good
            self._failed(
                f"internal error, report it with the output of aliquot version: {type(error).__name__}: {error}"
            )
        else:
            self._problem = ""
            self._last = time.monotonic(), inventory

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("the usage of the GPUs is unknown: %s", problem)
        self._problem = problem
        if self._last is not None and time.monotonic() - self._last[0] > GAP_S:
            self._on_vgpus(())
            self._on_sample(self._last[1], ())
            self._last = None

    def _read_sample(
        self, connection: Connection, uses: Sequence[PodDeviceUse]
    ) -> tuple[Inventory, tuple[Usage, ...], tuple[VgpuUsage, ...]] | AliquotError:
        """Read on the worker's thread. Errors are returned, not raised, as they must not close the session."""
        try:
            if self._watch is None:
                self._watch = UsageTracker(connection, fill=self._fill)
            inventory = self._read_inventory(connection, uses)
            return inventory, self._watch.sample(connection, inventory), read_vgpus(connection)
        except AliquotError as error:
            return error

    async def close(self) -> None:
        """Save the tracked usage for the next agent."""
        if self._watch is not None:
            await asyncio.to_thread(self._watch.save)


def sampling_interval_s(environment: dict[str, str]) -> float:
    """Return the seconds between two samples from ``ALIQUOT_USAGE_SECONDS``; 0 for none.

    Raises UsageError if the value is invalid.
    """
    text = environment.get(INTERVAL_VARIABLE, "")
    try:
        seconds = float(text) if text else SAMPLE_S
    except ValueError:
        seconds = -1.0
    if seconds and not 2 <= seconds <= 120:
        raise UsageError(
            f"invalid {INTERVAL_VARIABLE}={text}: use 2 to 120 seconds, or 0 to disable sampling",
            next_step=f"unset {INTERVAL_VARIABLE}",
        )
    return seconds


def _exporter() -> Fill | None:
    url = os.environ.get(DCGM_VARIABLE, "")
    if not url:
        return None
    from aliquot.node.dcgm_exporter import DcgmExporter

    return DcgmExporter(url, log.warning).fill
