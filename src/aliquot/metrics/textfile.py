"""A page as a file for node_exporter's textfile collector, which must never read half of one."""

from __future__ import annotations

import os
import shlex
import tempfile

from aliquot.errors import StorageError


def replace(path: str, text: bytes) -> None:
    """Whole, and readable by everybody, for node_exporter is another user. Raises StorageError."""
    folder = os.path.dirname(path) or "."
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
    except FileNotFoundError as error:
        raise StorageError(
            f"cannot write {path}: there is no folder {folder}", next_step=f"mkdir -p {shlex.quote(folder)}"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=f"ls -ld {folder}") from error
