"""Configuration files read from disk."""

from __future__ import annotations

import os

from aliquot.errors import ConfigError
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.conf.statements import Conf

LIMIT_MIB = 16
"""Size limit of a configuration file in MiB."""


def text_of(path: str) -> str:
    """Return the exact text of a file: written back with ``surrogateescape`` and ``newline=""``, no byte changes.

    Raises OSError, also for a file that is not a regular file or is larger than ``LIMIT_MIB``.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(None, "it is not a regular file", path)
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as stream:
        text = stream.read((LIMIT_MIB << 20) + 1)
    if len(text) > LIMIT_MIB << 20:
        raise OSError(None, f"it is larger than {LIMIT_MIB} MiB", path)
    return text


def read(path: str, kind: str = "") -> Conf | None:
    """Parse a configuration file and its includes; None if it does not exist.

    Raises ConfigError for a file that cannot be read. Errors in its content are in ``diagnostics`` of the result.
    """
    try:
        return parse(path, text_of, kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", next_step=f"ls -l {path}") from error
