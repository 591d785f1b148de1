"""The boot record on disk: the last desired states, in ``boot-record.json`` beside the journal."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.core.config.boot_record import BootRecord, RecordedRequest, merge_requests
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.foundation import paths
from aliquot.foundation.state_store import StateFile, Unreadable

FILE = "boot-record.json"
OLD_FILE = "wishes.json"


def _merge(ours: BootRecord, older: BootRecord) -> BootRecord:
    """Merge the entries of an older release into our record, GPU by GPU: it has not read ours and its entries are
    newer.
    """
    newer = {place for request in older.gpus for place in (request.uuid, request.desired.pci) if place}
    rest = [request for request in ours.gpus if not newer & {request.uuid, request.desired.pci}]
    return BootRecord(tuple(sorted([*older.gpus, *rest], key=lambda request: request.desired.pci)))


class BootRecordFile:
    """The record in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._file = StateFile(self.path, "boot-record", BootRecord, BootRecord(), legacy_name=OLD_FILE, merge=_merge)

    def load(self) -> tuple[RecordedRequest, ...]:
        """Return the recorded requests; none without a file. Raises StorageError."""
        return self._file.load().gpus

    @property
    def unreadable(self) -> Unreadable | None:
        """The file that the last ``load`` could not decode, or None."""
        return self._file.load_error

    def record(self, desired: Desired, after: Inventory) -> None:
        """Record a request that was reached. An unchanged record is not written. Raises StorageError."""
        previous = self.load()
        now = merge_requests(previous, desired, after)
        if now != previous:
            self.save(now)

    def save(self, requests: Iterable[RecordedRequest]) -> None:
        """Replace the record; it is on disk when this returns. Raises StorageError; then the old record remains."""
        self._file.save(BootRecord(tuple(requests)))


def boot_record_file(node: str | None) -> BootRecordFile:
    """Return the record file of this host (None) or of a simulated node, without opening its GPUs: at boot there may be
    no driver yet.
    """
    return BootRecordFile(paths.directories(node)[1])
