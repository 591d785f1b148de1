"""The agent's own record on disk: what must outlive it and cannot lie in the API server, which may be away."""

from __future__ import annotations

import os

import msgspec

from aliquot.agent.observation import Durable
from aliquot.errors import StorageError

FILE = "agent.json"


class Record:
    """One file below ``directory``, replaced whole and on disk before ``write`` returns."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, FILE)
        self.value = self._read()

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
        if value == self.value:
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
        self.value = value
