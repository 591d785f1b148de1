"""Reservations on disk: ``reservations.json`` beside the journal, replaced whole, with one writer at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from aliquot.containers.runtime.models import Reservation
from aliquot.errors import LockedError, PermissionDeniedError, StorageError

FILE = "reservations.json"
_VERSION = "aliquot/v1"
_POLL_S = 0.02


class _File(msgspec.Struct, frozen=True):
    version: str
    reservations: tuple[Reservation, ...]


class Reservations:
    """The record in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._lock = os.path.join(directory, "reservations.lock")

    def load(self) -> tuple[Reservation, ...]:
        """What is reserved; nothing where there is no file. Raises StorageError for one that cannot be read."""
        try:
            with open(self.path, "rb") as file:
                return msgspec.json.decode(file.read(), type=_File).reservations
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise StorageError(
                f"{self.path} cannot be read: {why}",
                next_step=f"remove it (rm {self.path}): containers that run keep what they have",
            ) from error

    def save(self, reservations: Iterable[Reservation]) -> None:
        """Replaces the record; it is on disk when this returns. Call it inside ``alone``. Raises StorageError."""
        temporary = f"{self.path}.{os.getpid()}.tmp"
        document = _File(_VERSION, tuple(reservations))
        try:
            with open(temporary, "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error

    @contextmanager
    def alone(self, patience_s: float) -> Iterator[None]:
        """Nobody else picks or releases meanwhile. Raises LockedError after ``patience_s`` seconds,
        PermissionDeniedError and StorageError.
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
                            f"another process picks devices for {patience_s:g} s already",
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
            # Whoever can open it, be it for reading, can hold it: nobody else can.
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(handle, 0o600)
            return handle
        except PermissionError as failure:
            raise PermissionDeniedError(
                f"nothing can be reserved: {self._lock}: {failure.strerror}",
                details=("--no-reserve only picks a device: nobody is kept from taking it, too",),
                next_step="run it as root, or with --no-reserve",
            ) from failure
        except OSError as failure:
            raise StorageError(f"nothing can be reserved: {self._lock}: {failure.strerror}") from failure
