"""Reservations on disk: ``container-reservations.json`` beside the journal, with one writer at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from aliquot.containers.runtime.models import ContainerReservation
from aliquot.errors import LockedError, PermissionDeniedError, StorageError
from aliquot.foundation.state_store import StateFile

FILE = "container-reservations.json"
LEGACY_FILE = "reservations.json"
_POLL_S = 0.02


class _Reserved(msgspec.Struct, frozen=True):
    reservations: tuple[ContainerReservation, ...] = ()


def _merge(ours: _Reserved, older: _Reserved) -> _Reserved:
    """Return the reservations of both: an older release did not see ours, and their containers may still run."""
    ids = {each.id for each in older.reservations}
    return _Reserved((*(each for each in ours.reservations if each.id not in ids), *older.reservations))


class ReservationFile:
    """The file of reservations in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._lock = os.path.join(directory, "reservations.lock")
        self._file = StateFile(
            self.path, "container-reservations", _Reserved, _Reserved(), legacy_name=LEGACY_FILE, merge=_merge
        )

    def load(self) -> tuple[ContainerReservation, ...]:
        """Return the reservations; none if the file does not exist. Raises StorageError."""
        return self._file.load().reservations

    def save(self, reservations: Iterable[ContainerReservation]) -> None:
        """Replace the file, durably. Call it inside ``exclusive``. Raises StorageError."""
        self._file.save(_Reserved(tuple(reservations)))

    @contextmanager
    def exclusive(self, patience_s: float) -> Iterator[None]:
        """Hold the lock, so that no other process picks or releases devices. Raises LockedError after ``patience_s``
        seconds, PermissionDeniedError and StorageError.
        """
        handle = self._open()
        try:
            deadline = time.monotonic() + patience_s
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as busy:
                    if time.monotonic() >= deadline:
                        raise LockedError(
                            f"another process has been picking devices for over {patience_s:g} s",
                            details=(f"lock: {self._lock}",),
                            next_step=f"fuser -v {self._lock}",
                        ) from busy
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(handle)

    def _open(self) -> int:
        try:
            os.makedirs(os.path.dirname(self._lock) or ".", mode=0o755, exist_ok=True)
            # A user who can open the file, even for reading, can hold the lock, so only root may open it.
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(handle, 0o600)
            return handle
        except PermissionError as failure:
            raise PermissionDeniedError(
                f"cannot change reservations: {self._lock}: {failure.strerror}", next_step="run it as root"
            ) from failure
        except OSError as failure:
            raise StorageError(f"cannot change reservations: {self._lock}: {failure.strerror}") from failure
