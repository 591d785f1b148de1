"""The record of a change of a Slurm node, on disk before each step, so that a kill at any time does no harm.

There is one file per Slurm node, ``slurm-changes/NAME.json`` next to the journal. It holds the request, the state
before, and the current step. An interrupted step is repeated; every step is idempotent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from aliquot.core.model.desired import Desired
from aliquot.core.model.stored import Stored
from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.foundation.paths import SLURM_CHANGES
from aliquot.foundation.state_store import StateFile
from aliquot.slurm.client.models import Gres
from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import GresDevice
from aliquot.slurm.node.node_attributes import NodeAttributes
from aliquot.slurm.node.request import NodeKind, SlurmChange, SlurmNodeSettings, SlurmStep

LEGACY_FOLDER = "slurm"
"""The folder of releases before the state store."""
ChangeStatus = Literal["open", "done", "undone", "refused"]


class ExpectedGres(msgspec.Struct, frozen=True):
    """The GRES that Slurm should have for the node, given the current GPUs."""

    gres: tuple[Gres, ...] = ()
    """Types and counts."""
    lines: tuple[str, ...] = ()
    """The lines of gres.conf."""
    notes: tuple[str, ...] = ()
    devices: tuple[GresDevice, ...] = ()
    """In the order of the ordinals that jobs get."""
    fenced: bool = False
    """Whether the lines also deny jobs access to other GPUs."""

    @property
    def text(self) -> str:
        """The value of ``Gres=``."""
        return (",".join(map(str, self.gres)) or "gpu:0") + (f",{fence.VALUE}" if self.fenced else "")


class NodeRestorePoint(msgspec.Struct, frozen=True):
    """The state before the change, for undoing it."""

    desired: Desired = Desired(())
    lines: tuple[str, ...] = ()
    """The lines of our managed block in gres.conf."""
    gres: tuple[Gres, ...] = ()
    """The GRES that Slurm had; for a static node, those of its line."""
    gres_text: str = ""
    features: tuple[str, ...] | None = None
    node_conf: str = ""
    """The other keys that the dynamic node had."""
    reason: str = ""
    """The reason of a drain that someone else had set before."""
    slurmd_start: int = 0
    """0 for a node that was never registered."""
    attributes: NodeAttributes = msgspec.field(default=NodeAttributes(), name="beside")
    """The other attributes of the node's record."""
    slots: bool = False
    """Whether the node was a slot board."""
    state: str = ""
    """The value of ``State=`` on the node's line in slurm.conf, "" for none."""


class SlotUse(msgspec.Struct, frozen=True):
    """A slot that jobs have. Their numbers are empty if Slurm only counts the slot as used."""

    slot: int
    jobs: tuple[int, ...] = ()


class ChangeRecord(msgspec.Struct, frozen=True):
    """A change of a Slurm node, and its progress."""

    run: str
    change: SlurmChange
    kind: Stored[NodeKind]
    status: Stored[ChangeStatus] = "open"
    phase: Stored[SlurmStep | Literal[""]] = ""
    """The current step; "" before the first."""
    undoing: bool = msgspec.field(default=False, name="back")
    """True if the change is being undone, because of ``why``."""
    undo_requested: bool = False
    """True if the user requested the undo: its end is then a success, also of one that a failure began."""
    drained: bool = False
    """True if we drained the node, so that we resume it."""
    touched: bool = False
    """True if something may differ from before."""
    restart: bool = False
    """True if slurmd must be restarted in any release: it does not run, or it would prevent the reset of a GPU."""
    beside_jobs: bool = False
    """True if only idle slots change, behind a reservation, and jobs on the other slots go on."""
    used_slots: tuple[SlotUse, ...] = ()
    """The slots that jobs had behind the reservation. They stay as they are."""
    dropped: tuple[str, ...] = ()
    """Why GPUs of the request were left out."""
    why: str = ""
    began: float = 0.0
    started: float = 0.0
    version: str = ""
    restore_point: NodeRestorePoint = msgspec.field(default=NodeRestorePoint(), name="before")
    expected: ExpectedGres = msgspec.field(default=ExpectedGres(), name="meant")
    node_conf: str = ""
    """The keys of a dynamic node other than ``Gres``. Earlier releases kept them in ``restore_point`` only."""
    previous_settings: SlurmNodeSettings | None = None
    """The settings of the last change that succeeded, or None if there was none."""
    steps: tuple[tuple[str, float], ...] = ()
    """The completed steps, each with its duration in seconds."""

    @property
    def name(self) -> str:
        return self.change.settings.name

    @property
    def goal_settings(self) -> SlurmNodeSettings:
        """The settings of the node after the change, or after its undo."""
        settings = self.change.settings
        return replace(settings, slots=self.restore_point.slots) if self.undoing else settings


def remembered_settings(record: ChangeRecord) -> SlurmNodeSettings:
    """Return the settings for the next change: those of this change, or of the one before if this one failed."""
    failed = record.status in ("undone", "refused")
    return (record.previous_settings if failed else None) or record.change.settings


class _Stored(msgspec.Struct, frozen=True):
    change: ChangeRecord | None = None


class ChangeRecordFile:
    """The file of the record of one Slurm node below ``directory``.

    If the record cannot be understood, this is reported, and the previous one is used: its step is repeated.
    """

    def __init__(self, directory: str, name: str) -> None:
        self.path = os.path.join(directory, SLURM_CHANGES, f"{name}.json")
        previous = os.path.join(os.pardir, LEGACY_FOLDER, f"{name}.json")
        self._file = StateFile(
            self.path, "slurm-change", _Stored, _Stored(), legacy_name=previous, decode_legacy=_older, mode=0o600
        )

    def read(self) -> ChangeRecord | None:
        """Read the record, or return None if there is none. Raises StorageError if the file system fails."""
        return self._file.load().change

    def write(self, record: ChangeRecord) -> None:
        """Write the record durably. Raises StorageError."""
        self._file.save(_Stored(record))


def _older(body: bytes) -> _Stored:
    """Decode the format of releases before the state store."""
    return _Stored(msgspec.json.decode(body, type=ChangeRecord))


def recorded_names(directory: str) -> list[str]:
    """Return the names of the Slurm nodes that have a record below ``directory``. Raises OSError."""
    names: set[str] = set()
    for folder in (SLURM_CHANGES, LEGACY_FOLDER):
        with suppress(FileNotFoundError):
            names |= {name for name in os.listdir(os.path.join(directory, folder)) if name.endswith(".json")}
    return sorted(name.removesuffix(".json") for name in names)


def write_file(path: str, data: bytes, mode: int, *, owner: tuple[int, int] | None = None) -> None:
    """Write a file atomically and durably. Raises StorageError."""
    try:
        atomic_file.replace(path, data, mode=mode, owner=owner)
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"df {os.path.dirname(path)}"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=step) from error
