"""A page as a file for node_exporter's textfile collector, which must never read half of one."""

from __future__ import annotations

import os
import shlex

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file


def replace(path: str, text: bytes) -> None:
    """Whole, and readable by everybody, for node_exporter is another user. Raises StorageError."""
    folder = os.path.dirname(path) or "."
    try:
        os.stat(folder)  # a misspelt one is not made
        atomic_file.replace(path, text, durable=False)
    except FileNotFoundError as error:
        raise StorageError(
            f"cannot write {path}: there is no folder {folder}", next_step=f"mkdir -p {shlex.quote(folder)}"
        ) from error
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=f"ls -ld {folder}") from error
