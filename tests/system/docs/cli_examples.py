"""The examples of docs/cli.md, each in a world where it has something to say."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec
import yaml

from .worlds import shell

PAGE = "docs/cli.md"
WORLDS = Path(__file__).with_name("cli_worlds.yaml")
STAYS_S = 4.0
"""How long a command that runs until Ctrl-C is watched."""
_INTERRUPTED = (0, 124, 130)


class Example(msgspec.Struct, frozen=True):
    """``unseen``: it makes the world, and is no example. ``stays``: it runs until it is interrupted."""

    text: str
    exit: int = 0
    unseen: bool = False
    stays: bool = False


class Group(msgspec.Struct, frozen=True):
    """One world and what is typed in it, in order."""

    world: str
    typed: tuple[Example, ...]


@cache
def groups() -> tuple[Group, ...]:
    rows = yaml.load(WORLDS.read_text(), yaml.CSafeLoader)
    return tuple(Group(row["world"], tuple(_example(one) for one in row["typed"])) for row in rows)


def _example(one: str | dict[str, object]) -> Example:
    if isinstance(one, str):
        return Example(one)
    ((key, value),) = one.items()
    if key in ("do", "stays"):
        return Example(str(value), unseen=key == "do", stays=key == "stays")
    return Example(key, exit=int(str(value)))


def typed(group: Group) -> list[str]:
    """What is wrong with the examples of one world. Skips the test where that world cannot be."""
    told: list[str] = []
    with shell(tuple(group.world.split())) as (bash, words):
        for one in group.typed:
            text = one.text
            for name, value in words.items():
                text = re.sub(rf"(?<!\w){re.escape(name)}\b", value.replace("\\", r"\\"), text)
            if one.stays:
                text = f"timeout --foreground -s INT -k 30 {STAYS_S} {text}"
            code, printed = bash.run(text)
            fine = code in _INTERRUPTED and "Traceback" not in printed if one.stays else code == one.exit
            if not fine:
                told.append(f"{one.text}\nexit code {code}, and not {one.exit}; it printed:\n{printed}")
    return told
