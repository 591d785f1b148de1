"""Every next command that Aliquot prints must be valid on its own command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from aliquot.cli.command_table import ROOT
from aliquot.cli.framework import parser as parse
from aliquot.errors import UsageError

_COMMAND = re.compile(r"\baliquot (?:'[^']*'|[^,;(>`']|\((?=[^)]*\)))+")


def commands(sentence: str) -> list[str]:
    """Return the ``aliquot`` commands in a next step, which may be a sentence around them."""
    parts = re.split(r" {2,}| or (?=aliquot )", sentence)
    return [match.group().strip() for part in parts for match in _COMMAND.finditer(part)]


def check(sentence: str) -> None:
    """Fail if a next step contains an invalid command."""
    for command in commands(sentence):
        try:
            found = parse.find(ROOT, shlex.split(command)[1:])
            if "--help" in found.rest or found.help_only:
                continue
            assert found.command.module, f"not a whole command: {command!r}"
            parse.typed_options(found)
        except UsageError as error:
            raise AssertionError(f"we print a command that we do not understand: {command!r}: {error.brief}") from error


def check_output(out: str, err: str) -> int:
    """Check every next step that a command printed, in text or JSON. Returns how many there were."""
    steps = [*_in_text(out), *_in_text(err)]
    for text in (out, err):
        if text.startswith("{"):
            steps += _in_document(msgspec.json.decode(text))
    for step in steps:
        check(step)
    return len(steps)


def _in_text(text: str) -> Iterator[str]:
    for line in text.splitlines():
        head, _, step = line.strip().partition(" ")
        if head == "next":
            yield step.strip()


def _in_document(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("next"), str):
            yield value["next"]
        for inner in value.values():
            yield from _in_document(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _in_document(inner)
