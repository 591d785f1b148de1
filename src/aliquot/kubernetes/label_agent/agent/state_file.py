"""The agent's own record on disk: what must outlive it and cannot lie in the API server, which may be away."""

from __future__ import annotations

import os

import msgspec

from aliquot.errors import StorageError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.label_agent.agent.observation import Durable

FILE = "agent.json"


class Record:
    """One file below ``directory``, replaced whole and on disk before ``write`` returns. ``fault`` says why it cannot
    be read; then it counts as empty, and nothing is written over it.
    """

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, FILE)
        self._behind = False
        self.value = Durable()
        self.fault: StorageError | None = None
        self.refresh()

    def refresh(self) -> None:
        """Reads what could not be read before."""
        try:
            self.value, self.fault = self._read(), None
        except StorageError as error:
            self.fault = error

    def _read(self) -> Durable:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=Durable)
        except FileNotFoundError:
            return Durable()
        except (OSError, msgspec.DecodeError) as error:
            raise StorageError(
                f"the agent's record {self._path} cannot be read: {error}",
                next_step=f"look at it, start stopped GPU services by hand, then remove it: rm {self._path}",
            ) from error

    def write(self, value: Durable) -> None:
        """Raises StorageError; then nothing that depends on the record may be done."""
        if self.fault is not None:
            raise self.fault
        if value == self.value and not self._behind:
            return
        temporary = f"{self._path}.tmp"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(msgspec.json.encode(value))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
            folder = os.open(os.path.dirname(self._path), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror or error}") from error
        self.value, self._behind = value, False

    def forget(self, value: Durable) -> None:
        """Writes a record of less than before, because it is done. If that fails it will be done once more after a
        restart, which is harmless, and no reason to stop here.
        """
        try:
            self.write(value)
        except StorageError as error:
            log.warning("%s: what is done stays on record", error.brief)
            self.value, self._behind = value, True
