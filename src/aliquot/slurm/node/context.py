"""The ports of a Slurm node's change, as plain attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from aliquot.errors import StorageError
from aliquot.foundation.callbacks import Report
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.node.change_record import ChangeRecord, ChangeRecordFile, ChangeStatus
from aliquot.slurm.node.next_step import SlurmNodeObservation
from aliquot.slurm.node.request import NodeKind
from aliquot.slurm.node.slurmd import SlurmdDaemon

if TYPE_CHECKING:
    from aliquot.core.engine.context import ExecutionContext as Gpus


class StateFolders(msgspec.Struct, frozen=True):
    """The directories of state files."""

    lib: str
    """State that survives a reboot."""
    run: str
    """The directory where the TaskProlog finds the numbering of devices."""
    simulated: bool = False
    """Whether the node is simulated."""


class SlurmChangeContext:
    """The ports of a change: ``gpus`` are those of the engine, and ``report`` receives progress messages."""

    def __init__(
        self, slurm: Slurm, gpus: Gpus, daemon: SlurmdDaemon, folders: StateFolders, name: str, report: Report
    ) -> None:
        self.slurm = slurm
        self.gpus = gpus
        self.daemon = daemon
        self.folders = folders
        self.file = ChangeRecordFile(folders.lib, name)
        self.report = report
        self.command: tuple[str, ...] = ("aliquot", "slurm", "apply")
        """The command that requested the change: a next command may repeat it."""
        self.last_observation: SlurmNodeObservation | None = None
        """The last observation of the node that includes its jobs."""

    def save(self, record: ChangeRecord, *, required: bool = True) -> None:
        """Write a record. Raises StorageError.

        While undoing, or without ``required``, an error is only reported, because the record on disk then names an
        earlier step, which can be repeated.
        """
        try:
            self.file.write(record)
        except StorageError as error:
            if required and not record.undoing:
                raise
            self.report(f"note: {error.brief}")

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self.gpus.clock.now()

    def sleep(self, seconds: float) -> None:
        self.gpus.clock.sleep(seconds)


class SlurmChangeOutcome(msgspec.Struct, frozen=True):
    """The outcome of a change."""

    status: ChangeStatus | Literal["nothing"]
    """``nothing`` (already as requested), ``done``, or ``undone`` (it failed, and the previous state is restored)."""
    name: str
    kind: NodeKind
    gres: str
    revision: str = ""
    drained: bool = False
    """Whether the node takes no jobs now, because of ``reason``."""
    reason: str = ""
    notes: tuple[str, ...] = ()
    steps: tuple[tuple[str, float], ...] = ()
    """The duration of each step in seconds."""
    why: str = ""
    code: str = ""
    exit_code: int = 0
