"""Type a page from top to bottom and report what differs from the page."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from .compare import agrees, trimmed
from .environments import shell
from .pages import Command, File, Page
from .shell import Shell

LISTED = Path(__file__).with_name("not_run.yaml")
PATIENCE_S = 90.0


class Fault(NamedTuple):
    """An error of a command of a page."""

    line: int
    command: str
    what: str


class Typed(NamedTuple):
    """Result of a page. ``printed`` are the outputs that differ from the shown ones, by command."""

    faults: list[Fault]
    printed: list[tuple[Command, list[str]]]
    ran: int
    words: dict[str, str]


class NotRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that cannot be typed here, and the reason."""

    page: str
    command: str
    reason: str


def listed() -> list[NotRun]:
    """Return all commands that are not run. Raises msgspec.ValidationError if the list is malformed."""
    found: list[NotRun] = []
    for page, rows in (yaml.safe_load(LISTED.read_text()) or {}).items():
        found += [msgspec.convert({"page": page, **row}, NotRun) for row in rows]
    return found


def bare(text: str) -> str:
    """Return a command without its trailing comment, in one line."""
    return re.sub(r"\s+", " ", re.sub(r"\s{2,}# .*$", "", text, flags=re.MULTILINE).replace("\\\n", " ")).strip()


def typed(page: Page) -> Typed:
    """Type a page in a new environment. Skips the test if the environment cannot be set up."""
    left_out = {row.command for row in listed() if row.page == page.name}
    steps = [s for s in page.steps if isinstance(s, File) or bare(s.text) not in left_out]
    if not any(isinstance(step, Command) for step in steps):
        return Typed([], [], 0, {})
    assert page.environment, f"{page.name} has commands, and no <!-- runs: --> at its top says where"
    typing = _Typing(page)
    with shell(page.environment) as (bash, words):
        typing.words |= words
        for step in steps:
            if isinstance(step, File):
                place = bash.folder / step.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(typing.filled(step.text))
            elif not typing.step(bash, step):
                break
    return Typed(typing.faults, typing.printed, typing.ran, typing.words)


class _Typing:
    def __init__(self, page: Page) -> None:
        self.words = dict(page.words)
        self.faults: list[Fault] = []
        self.printed: list[tuple[Command, list[str]]] = []
        self.ran = 0

    def filled(self, text: str) -> str:
        """Return the text with values in place of placeholders."""
        for name, value in self.words.items():
            text = re.sub(rf"(?<!\w){re.escape(name)}\b", value.replace("\\", r"\\"), text)
        return text

    def step(self, bash: Shell, command: Command) -> bool:
        """Type a command. Returns whether the page can go on."""
        text = self.filled(command.text)
        self.ran += 1
        try:
            if command.background:
                return self._background(bash, command, text)
            code, lines = self._asked(bash, command, text)
        except TimeoutError as error:
            self.faults.append(Fault(command.line, command.text, str(error)))
            return False
        if code != command.exit:
            what = f"exit code {code}, and not {command.exit}; it printed:\n" + "\n".join(lines)
            self.faults.append(Fault(command.line, command.text, what))
            return True
        self._compared(command, lines)
        return True

    def _asked(self, bash: Shell, command: Command, text: str) -> tuple[int, list[str]]:
        end = time.monotonic() + PATIENCE_S
        while True:
            code, printed = bash.run(text)
            lines = trimmed(printed.splitlines())
            if not command.eventually or (code == command.exit and self._as_shown(command, lines)):
                return code, lines
            if time.monotonic() > end:
                return code, lines
            time.sleep(0.3)

    def _background(self, bash: Shell, command: Command, text: str) -> bool:
        place = bash.background(text)
        end = time.monotonic() + PATIENCE_S
        while True:
            lines = trimmed(place.read_text(errors="replace").splitlines())
            if self._as_shown(command, lines):
                return True
            if time.monotonic() > end:
                self._compared(command, lines)
                return False
            time.sleep(0.2)

    def _as_shown(self, command: Command, lines: list[str]) -> bool:
        return command.shown is None or agrees(tuple(self.filled(s) for s in command.shown), lines)

    def _compared(self, command: Command, lines: list[str]) -> None:
        if self._as_shown(command, lines):
            return
        assert command.shown is not None
        self.printed.append((command, lines))
        what = "it shows\n" + "\n".join(command.shown) + "\nand this was printed:\n" + "\n".join(lines)
        self.faults.append(Fault(command.line, command.text, what))


def update(page: Page, result: Typed) -> int:
    """Write the printed output into a page in place of the shown one. Returns the number of updated commands."""
    lines = page.path.read_text().splitlines()
    indents = {
        number: block.indent for block in page.blocks for number in range(block.line, block.line + len(block.lines) + 1)
    }
    for command, printed in sorted(result.printed, key=lambda row: -row[0].line):
        begin, end = command.lines
        margin = " " * indents.get(begin, 0)
        for name, value in result.words.items():
            if "/" in value:  # a path of this run
                printed = [line.replace(value, name) for line in printed]
        lines[begin:end] = [f"{margin}{line}".rstrip() for line in printed]
    page.path.write_text("\n".join(lines) + "\n")
    return len(result.printed)
