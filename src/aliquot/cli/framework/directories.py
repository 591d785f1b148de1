"""Directories that a command line names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def require_directories(option: str, paths: Iterable[str], args: Args) -> None:
    """Raise UsageError for a path that is not a directory: it may be misspelt, and would silently be empty."""
    for path in paths:
        if not os.path.isdir(path):
            raise UsageError(f"{option}: {path} is not a directory", next_step=f"{args.prog} --help")
