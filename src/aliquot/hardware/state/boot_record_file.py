"""The record of the last wishes on disk: ``boot-record.json`` beside the journal."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.core.config.boot_record import Kept, Record
from aliquot.foundation import paths
from aliquot.foundation.state_store import StateFile, Unreadable

FILE = "boot-record.json"
FORMER = "wishes.json"


def _merged(ours: Record, older: Record) -> Record:
    """Our record with what an older release recorded since, GPU by GPU: it did not see ours."""
    newer = {place for kept in older.gpus for place in (kept.uuid, kept.wish.pci) if place}
    rest = [kept for kept in ours.gpus if not newer & {kept.uuid, kept.wish.pci}]
    return Record(tuple(sorted([*older.gpus, *rest], key=lambda kept: kept.wish.pci)))


class FileWishes:
    """The record in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._file = StateFile(self.path, "boot-record", Record, Record(), former=FORMER, merge=_merged)

    def load(self) -> tuple[Kept, ...]:
        """What is recorded; nothing where there is no file. Raises StorageError."""
        return self._file.load().gpus

    @property
    def fault(self) -> Unreadable | None:
        """What the last ``load`` could not understand; None where it understood all."""
        return self._file.fault

    def save(self, kept: Iterable[Kept]) -> None:
        """Replaces the record; it is on disk when this returns. Raises StorageError, and then the old one holds."""
        self._file.save(Record(tuple(kept)))


def recorded(node: str | None) -> FileWishes:
    """The record of this machine (None) or of a simulated node, without opening its GPUs: at boot there may be no
    driver yet.
    """
    return FileWishes(paths.directories(node)[1])
