"""Contents of a page's environment, and the simplest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from aliquot.sim import lifecycle as control


class Environment(msgspec.Struct):
    """An environment. ``env`` adds variables to the shell's, and ``before`` are the words in front of the shell.

    ``more`` runs when the overlays are mounted. ``words`` are the values of the page's placeholders.
    """

    folder: Path
    env: dict[str, str]
    before: tuple[str, ...] = ()
    more: str = "true"
    words: dict[str, str] = {}

    @property
    def bin(self) -> Path:
        return self.folder / "bin"


Making = Callable[[Environment, tuple[str, ...]], AbstractContextManager[None]]


def program(path: Path, text: str) -> Path:
    """Write a shell script with this text."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@contextmanager
def sim(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    if words:
        control.start(str(environment.folder / "state"), words[0], "lab")
        environment.env["ALIQUOT_SIM"] = "lab"
    yield
