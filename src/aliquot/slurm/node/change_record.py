"""The record of a change of a Slurm node: on disk before each step, so that a kill at any instant costs nothing.

One file per Slurm node, ``slurm-changes/NAME.json`` beside the journal. It holds what is asked, what was before, and
the step that is under way; a step that was under way is done again, and every step may be.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

import msgspec

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
from aliquot.slurm.node.request import NodeKind, SlurmChange, SlurmStep

LEGACY_FOLDER = "slurm"
"""The folder of releases before the state store."""
ChangeStatus = Literal["open", "done", "undone", "refused"]


class ExpectedGres(msgspec.Struct, frozen=True):
    """What Slurm should say of the node, from the GPUs as they are: types and counts, and the lines of gres.conf.
    ``devices`` are in the order of the ordinals that jobs get. ``fenced``: the lines keep jobs from other GPUs, too.
    """

    gres: tuple[Gres, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    devices: tuple[GresDevice, ...] = ()
    fenced: bool = False

    @property
    def text(self) -> str:
        """The value of ``Gres=``."""
        return (",".join(map(str, self.gres)) or "gpu:0") + (f",{fence.VALUE}" if self.fenced else "")


class NodeRestorePoint(msgspec.Struct, frozen=True):
    """What there was before anything was touched: the way back. ``lines`` are those of our block in gres.conf, ``gres``
    the value that Slurm had (for a static node: its line), ``node_conf`` a dynamic node's other words. ``reason`` is
    that of whoever had drained the node before us. ``attributes`` is what else its record had. ``slurmd_start`` is 0
    for a node that never was registered.
    """

    desired: Desired = Desired(())
    lines: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    gres_text: str = ""
    features: tuple[str, ...] | None = None
    node_conf: str = ""
    reason: str = ""
    slurmd_start: int = 0
    attributes: NodeAttributes = msgspec.field(default=NodeAttributes(), name="beside")


class ChangeRecord(msgspec.Struct, frozen=True):
    """``phase`` is the step under way, "" before the first. ``undoing``: the change failed (``why``) and is being
    undone. ``drained`` says that we drained the node, so that we resume it; ``touched`` that something may differ from
    before, ``restart`` that slurmd is started anew whatever the release: it does not run, or would keep a GPU from its
    reset.
    """

    run: str
    change: SlurmChange
    kind: Stored[NodeKind]
    status: Stored[ChangeStatus] = "open"
    phase: Stored[SlurmStep | Literal[""]] = ""
    undoing: bool = msgspec.field(default=False, name="back")
    drained: bool = False
    touched: bool = False
    restart: bool = False
    why: str = ""
    began: float = 0.0
    started: float = 0.0
    version: str = ""
    restore_point: NodeRestorePoint = msgspec.field(default=NodeRestorePoint(), name="before")
    expected: ExpectedGres = msgspec.field(default=ExpectedGres(), name="meant")
    steps: tuple[tuple[str, float], ...] = ()
    """What was done, and how long each step took in seconds."""

    @property
    def name(self) -> str:
        return self.change.settings.name


class _Stored(msgspec.Struct, frozen=True):
    change: ChangeRecord | None = None


class ChangeRecordFile:
    """The record of one Slurm node below ``directory``. One that cannot be understood is reported and counts as the one
    before: the step that it names is done again.
    """

    def __init__(self, directory: str, name: str) -> None:
        self.path = os.path.join(directory, SLURM_CHANGES, f"{name}.json")
        previous = os.path.join(os.pardir, LEGACY_FOLDER, f"{name}.json")
        self._file = StateFile(
            self.path, "slurm-change", _Stored, _Stored(), legacy_name=previous, decode_legacy=_older, mode=0o600
        )

    def read(self) -> ChangeRecord | None:
        """None where there is none. Raises StorageError where the file system refuses."""
        return self._file.load().change

    def write(self, record: ChangeRecord) -> None:
        """On disk when this returns. Raises StorageError."""
        self._file.save(_Stored(record))


def _older(body: bytes) -> _Stored:
    """What releases before the state store wrote."""
    return _Stored(msgspec.json.decode(body, type=ChangeRecord))


def recorded_names(directory: str) -> list[str]:
    """Return the names of the Slurm nodes that have a record below ``directory``. Raises OSError."""
    names: set[str] = set()
    for folder in (SLURM_CHANGES, LEGACY_FOLDER):
        with suppress(FileNotFoundError):
            names |= {name for name in os.listdir(os.path.join(directory, folder)) if name.endswith(".json")}
    return sorted(name.removesuffix(".json") for name in names)


def write_file(path: str, data: bytes, mode: int, *, owner: tuple[int, int] | None = None) -> None:
    """A whole file or the former one, and on disk when this returns. Raises StorageError."""
    try:
        atomic_file.replace(path, data, mode=mode, owner=owner)
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"df {os.path.dirname(path)}"
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=step) from error
