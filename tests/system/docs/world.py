"""What a page's world is made of, and the simplest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from aliquot.sim import lifecycle as control


class World(msgspec.Struct):
    """``env`` adds to the shell's, ``before`` are the words that it begins with, ``more`` is done after the layers are
    there; ``words`` stand for placeholders of the page.
    """

    folder: Path
    env: dict[str, str]
    before: tuple[str, ...] = ()
    more: str = "true"
    words: dict[str, str] = {}

    @property
    def bin(self) -> Path:
        return self.folder / "bin"


Making = Callable[[World, tuple[str, ...]], AbstractContextManager[None]]


def program(path: Path, text: str) -> Path:
    """A shell script there."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@contextmanager
def sim(world: World, words: tuple[str, ...]) -> Iterator[None]:
    if words:
        control.start(str(world.folder / "state"), words[0], "lab")
        world.env["ALIQUOT_SIM"] = "lab"
    yield
