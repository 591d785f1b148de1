"""The examples of docs/cli.md, each in an environment where it prints something."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec
import yaml

from .environments import shell

PAGE = "docs/cli.md"
FRAMEWORKS = Path(__file__).with_name("cli_environments.yaml")
STAYS_S = 4.0
"""Seconds for which a command that runs until Ctrl-C is observed."""
_INTERRUPTED = (0, 124, 130)


class Example(msgspec.Struct, frozen=True):
    """A command. ``unseen``: it sets up the environment and is not in the page. ``stays``: it runs until Ctrl-C."""

    text: str
    exit: int = 0
    unseen: bool = False
    stays: bool = False


class Group(msgspec.Struct, frozen=True):
    """An environment and the commands to type in it, in order."""

    environment: str
    typed: tuple[Example, ...]


@cache
def groups() -> tuple[Group, ...]:
    rows = yaml.load(FRAMEWORKS.read_text(), yaml.CSafeLoader)
    return tuple(Group(row["world"], tuple(_example(one) for one in row["typed"])) for row in rows)


def _example(one: str | dict[str, object]) -> Example:
    if isinstance(one, str):
        return Example(one)
    ((key, value),) = one.items()
    if key in ("do", "stays"):
        return Example(str(value), unseen=key == "do", stays=key == "stays")
    return Example(key, exit=int(str(value)))


def typed(group: Group) -> list[str]:
    """Run the examples of an environment and return the errors. Skips the test if the environment cannot be set up."""
    messages: list[str] = []
    with shell(tuple(group.environment.split())) as (bash, words):
        for one in group.typed:
            text = one.text
            for name, value in words.items():
                text = re.sub(rf"(?<!\w){re.escape(name)}\b", value.replace("\\", r"\\"), text)
            if one.stays:
                text = f"timeout --foreground -s INT -k 30 {STAYS_S} {text}"
            code, printed = bash.run(text)
            fine = code in _INTERRUPTED and "Traceback" not in printed if one.stays else code == one.exit
            if not fine:
                messages.append(f"{one.text}\nexit code {code}, and not {one.exit}; it printed:\n{printed}")
    return messages
