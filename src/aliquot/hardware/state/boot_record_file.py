"""The record of the last wishes on disk: ``wishes.json`` beside the journal, replaced whole."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.core.config.boot_record import Kept, decode, encode
from aliquot.errors import ConfigError, StorageError
from aliquot.foundation import paths

FILE = "wishes.json"


class FileWishes:
    """The record in one directory."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, FILE)

    def load(self) -> tuple[Kept, ...]:
        """What is recorded; nothing where there is no file. Raises StorageError for one that cannot be read."""
        try:
            with open(self.path, "rb") as file:
                return decode(file.read(), self.path)
        except FileNotFoundError:
            return ()
        except (OSError, ConfigError) as error:
            why = error.brief if isinstance(error, ConfigError) else f"{self.path}: {error.strerror}"
            raise StorageError(
                f"the record of wishes cannot be read: {why}",
                next_step=f"remove it (rm {self.path}), then apply the wishes again",
            ) from error

    def save(self, kept: Iterable[Kept]) -> None:
        """Replaces the record; it is on disk when this returns. Raises StorageError, and then the old one holds."""
        temporary = f"{self.path}.{os.getpid()}.tmp"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(encode(kept) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            _remove(temporary)
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def recorded(node: str | None) -> FileWishes:
    """The record of this machine (None) or of a simulated node, without opening its GPUs: at boot there may be no
    driver yet.
    """
    return FileWishes(paths.directories(node)[1])
