"""Configuration files from disk."""

from __future__ import annotations

import os

from aliquot.errors import ConfigError
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.conf.statements import Conf

LIMIT_MIB = 16
"""A configuration larger than this is none."""


def text_of(path: str) -> str:
    """A file's text, exactly: written back with ``surrogateescape`` and ``newline=""`` it is the same, byte for byte.

    Raises OSError, also for a file that is no regular one or larger than ``LIMIT_MIB``.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(None, "it is no regular file", path)
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as stream:
        text = stream.read((LIMIT_MIB << 20) + 1)
    if len(text) > LIMIT_MIB << 20:
        raise OSError(None, f"it is larger than {LIMIT_MIB} MiB", path)
    return text


def read(path: str, kind: str = "") -> Conf | None:
    """A configuration with everything that it includes; None where there is no such file.

    Raises ConfigError for a file that cannot be read; faults within it are the value's ``faults``.
    """
    try:
        return parse(path, text_of, kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", next_step=f"ls -l {path}") from error
