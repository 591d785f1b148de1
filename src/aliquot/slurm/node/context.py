"""Everything outside of one Slurm node's change, bundled: plain attributes, one per port."""

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
    """``lib`` is the folder of what outlives a reboot, ``run`` where the TaskProlog finds the devices' numbering.
    ``simulated``: the node is a simulation.
    """

    lib: str
    run: str
    simulated: bool = False


class SlurmChangeContext:
    """``gpus`` are the engine's ports, ``report`` takes a line of progress for each act. ``last_observation`` is the
    last look at the node for which its jobs were asked for.
    """

    def __init__(
        self, slurm: Slurm, gpus: Gpus, daemon: SlurmdDaemon, folders: StateFolders, name: str, report: Report
    ) -> None:
        self.slurm = slurm
        self.gpus = gpus
        self.daemon = daemon
        self.folders = folders
        self.file = ChangeRecordFile(folders.lib, name)
        self.report = report
        self.last_observation: SlurmNodeObservation | None = None

    def save(self, record: ChangeRecord, *, required: bool = True) -> None:
        """A record, on disk. On the way back, and without ``required``, it is said where the disk takes none: what is
        there names an earlier step, which may be done again. Raises StorageError.
        """
        try:
            self.file.write(record)
        except StorageError as error:
            if required and not record.undoing:
                raise
            self.report(f"note: {error.brief}")

    def now(self) -> float:
        """Seconds, monotonic."""
        return self.gpus.clock.now()

    def sleep(self, seconds: float) -> None:
        self.gpus.clock.sleep(seconds)


class SlurmChangeOutcome(msgspec.Struct, frozen=True):
    """What became of a change. ``status``: ``nothing`` (all was so already), ``done``, ``undone`` (it failed, and what
    was is back). ``drained`` says that the node takes no jobs now, and ``reason`` why. ``steps`` are the seconds that
    each took.
    """

    status: ChangeStatus | Literal["nothing"]
    name: str
    kind: NodeKind
    gres: str
    revision: str = ""
    drained: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    steps: tuple[tuple[str, float], ...] = ()
    why: str = ""
    code: str = ""
    exit_code: int = 0
