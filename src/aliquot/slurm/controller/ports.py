"""The ports of the controller: the cluster, its nodes, time, and what it reports to."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Protocol

import msgspec

from aliquot.foundation.callbacks import Report
from aliquot.slurm.client.cluster_claim import ControllerClaim, NoClaim
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.observer import NullSlurmObserver, SlurmObserver
from aliquot.slurm.controller.poll_hint import NoWake, Wake
from aliquot.slurm.controller.remote_nodes import RemoteNodes


class EpochClock(Protocol):
    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None: ...


class ControllerPorts(msgspec.Struct, frozen=True):
    """The ports of the controller.

    ``threads`` run slow calls, ``observer`` collects metrics, and Slurm's hooks touch ``wake``.
    """

    slurm: Slurm
    hosts: RemoteNodes
    clock: EpochClock
    threads: Executor
    log: Report
    observer: SlurmObserver = NullSlurmObserver()
    wake: Wake = NoWake()
    claim: ControllerClaim = NoClaim()
