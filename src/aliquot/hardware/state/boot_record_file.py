"""The record of the last wishes on disk: ``boot-record.json`` beside the journal."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.core.config.boot_record import BootRecord, RecordedRequest
from aliquot.foundation import paths
from aliquot.foundation.state_store import StateFile, Unreadable

FILE = "boot-record.json"
OLD_FILE = "wishes.json"


def _merge(ours: BootRecord, older: BootRecord) -> BootRecord:
    """Our record with what an older release recorded since, GPU by GPU: it did not see ours."""
    newer = {place for request in older.gpus for place in (request.uuid, request.desired.pci) if place}
    rest = [request for request in ours.gpus if not newer & {request.uuid, request.desired.pci}]
    return BootRecord(tuple(sorted([*older.gpus, *rest], key=lambda request: request.desired.pci)))


class BootRecordFile:
    """The record in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._file = StateFile(self.path, "boot-record", BootRecord, BootRecord(), legacy_name=OLD_FILE, merge=_merge)

    def load(self) -> tuple[RecordedRequest, ...]:
        """What is recorded; nothing where there is no file. Raises StorageError."""
        return self._file.load().gpus

    @property
    def unreadable(self) -> Unreadable | None:
        """What the last ``load`` could not understand; None where it understood all."""
        return self._file.load_error

    def save(self, requests: Iterable[RecordedRequest]) -> None:
        """Replaces the record; it is on disk when this returns. Raises StorageError, and then the old one holds."""
        self._file.save(BootRecord(tuple(requests)))


def boot_record_file(node: str | None) -> BootRecordFile:
    """The record of this machine (None) or of a simulated node, without opening its GPUs: at boot there may be no
    driver yet.
    """
    return BootRecordFile(paths.directories(node)[1])
