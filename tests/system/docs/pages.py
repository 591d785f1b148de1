"""Pages as data: their blocks, the commands in them, and the output that each command should print.

HTML comments, which readers do not see, hold the instructions for this suite::

    <!-- runs: sim a100-sxm4-40gb*2 NODE=gpu-1 -->
    <!-- setup: COMMAND -->
    <!-- exit: 20 -->
    <!-- eventually -->
    <!-- background -->
    <!-- file: config.yaml -->

- ``runs``, at the top: the environment of the page (see ``environments``) and the values of its placeholders
- ``setup``: a command that runs but is not shown; it may take several lines
- ``exit``, before a block: the exit code of its last command; several codes, one for each command
- ``eventually``, before a block: the command is repeated until its output is as shown
- ``background``, before a block: its last command runs until the page ends
- ``file``, before a block of another language: the block is saved as that file

In a ``console`` block ``$ `` begins a command, ``> `` continues it, and the rest is its output. A line ``...`` stands
for any lines, and ``...`` within a line for any text. In an ``sh`` block every line is typed.
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

HOUSE = Path(__file__).resolve().parents[3]
TYPED = ("console", "sh", "bash")
_FENCE = re.compile(r"^( *)```(\S*)\s*$")
_COMMENT = re.compile(r"^\s*<!--\s*(runs|setup|exit|eventually|background|file)\b:?\s*(.*?)\s*(-->)?\s*$")


class Command(msgspec.Struct, frozen=True):
    """A command of a page.

    ``shown`` is the output that it should print, None if the page shows none. ``lines`` is the range of ``shown`` in
    the page, from 0 and without the end.
    """

    line: int
    text: str
    shown: tuple[str, ...] | None = None
    lines: tuple[int, int] = (0, 0)
    exit: int = 0
    eventually: bool = False
    background: bool = False
    unseen: bool = False


class Block(msgspec.Struct, frozen=True):
    """A fenced block: the line of its fence (from 1), its language, and its lines without their indent."""

    line: int
    language: str
    lines: tuple[str, ...]
    indent: int
    marks: dict[str, str]


class File(msgspec.Struct, frozen=True):
    """A block that is saved before the following commands are typed."""

    name: str
    text: str


class Page(msgspec.Struct, frozen=True):
    """A page. ``environment`` is its kind and arguments, ``words`` are placeholders, ``steps`` run in order."""

    path: Path
    environment: tuple[str, ...]
    words: dict[str, str]
    steps: tuple[Command | File, ...]
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(HOUSE)) if self.path.is_relative_to(HOUSE) else self.path.name

    @property
    def commands(self) -> tuple[Command, ...]:
        return tuple(step for step in self.steps if isinstance(step, Command))


def every() -> list[Path]:
    """Return all pages for users."""
    folders = [*HOUSE.glob("docs/**/*.md"), *HOUSE.glob("deploy/**/*.md"), *HOUSE.glob("catalog/*.md")]
    return sorted({*folders, HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", HOUSE / "SECURITY.md"})


@functools.cache
def read(path: Path) -> Page:
    """Read a page. Raises AssertionError with the place if something in the page cannot be understood."""
    lines = path.read_text().splitlines()
    environment: tuple[str, ...] = ()
    words: dict[str, str] = {}
    steps: list[Command | File] = []
    blocks: list[Block] = []
    for item in _items(path, lines):
        if isinstance(item, Block):
            blocks.append(item)
            steps.extend(_steps(path, item))
        elif item[0] == "runs":
            named = [w for w in item[1].split() if re.match(r"[A-Z][A-Z_]*=", w)]
            words = dict(w.split("=", 1) for w in named)
            environment = tuple(w for w in item[1].split() if w not in named)
        else:
            texts = _logical(item[1].splitlines())
            steps.extend(Command(item[2], text, unseen=True) for _, text in texts)
    return Page(path, environment, words, tuple(steps), tuple(blocks))


def _items(path: Path, lines: list[str]) -> Iterator[Block | tuple[str, str, int]]:
    """Yield the blocks with the marks before them, and the comments that stand alone."""
    marks: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.match(line):
            end = _end(path, lines, number, len(fence[1]))
            inside = tuple(each.removeprefix(fence[1]) for each in lines[number + 1 : end])
            yield Block(number + 1, fence[2], inside, len(fence[1]), marks)
            marks, number = {}, end + 1
            continue
        if mark := _COMMENT.match(line):
            text, first = mark[2], number + 1
            while not mark[3] and not lines[number].rstrip().endswith("-->"):
                number += 1
                assert number < len(lines), f"{path}:{first}: this comment has no end"
                text += "\n" + lines[number].rstrip().removesuffix("-->").rstrip()
            if mark[1] in ("runs", "setup"):
                yield mark[1], text, first
            else:
                marks[mark[1]] = text
        number += 1
    assert not marks, f"{path}: no block follows {marks}"


def _end(path: Path, lines: list[str], begin: int, indent: int) -> int:
    for number in range(begin + 1, len(lines)):
        if lines[number].strip() == "```" and len(lines[number]) - 3 <= indent:
            return number
    raise AssertionError(f"{path}:{begin + 1}: this block has no end")


def _steps(path: Path, block: Block) -> list[Command | File]:
    if "file" in block.marks:
        return [File(block.marks["file"], "\n".join(block.lines) + "\n")]
    if block.language not in TYPED:
        assert not block.marks, f"{path}:{block.line}: {block.marks} before a block that is not typed"
        return []
    found = list(_console(block)) if block.language == "console" else list(_script(block))
    assert found, f"{path}:{block.line}: no command in this block"
    codes = [int(word) for word in block.marks.get("exit", "0").split()]
    if len(codes) == 1:
        codes = [0] * (len(found) - 1) + codes
    assert len(codes) == len(found), f"{path}:{block.line}: {len(codes)} exit codes for {len(found)} commands"
    found = [msgspec.structs.replace(c, exit=code) for c, code in zip(found, codes, strict=True)]
    if "eventually" in block.marks:
        found = [msgspec.structs.replace(c, eventually=True) for c in found]
    if "background" in block.marks:
        found[-1] = msgspec.structs.replace(found[-1], background=True)
    return list(found)


def _script(block: Block) -> Iterator[Command]:
    for offset, text in _logical(list(block.lines)):
        yield Command(block.line + 1 + offset, text)


def _console(block: Block) -> Iterator[Command]:
    number, lines = 0, block.lines
    while number < len(lines):
        first = number
        assert lines[number].startswith("$ "), f"line {block.line + 1 + number}: it prints before anything is typed"
        text = [lines[number][2:]]
        number += 1
        while number < len(lines) and lines[number].startswith("> "):
            text.append(lines[number][2:])
            number += 1
        begin = number
        while number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        shown = lines[begin:number]
        while shown and not shown[-1].strip():
            shown = shown[:-1]
        place = (block.line + begin, block.line + begin + len(shown))
        yield Command(block.line + 1 + first, "\n".join(text), shown or None, place)


def _logical(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the whole commands of a script with their first lines."""
    held: list[str] = []
    first = 0
    for number, line in enumerate(lines):
        if not held:
            first = number
            if not line.strip() or line.lstrip().startswith("#"):
                continue
        held.append(line)
        if _whole("\n".join(held)):
            yield first, "\n".join(held)
            held = []
    assert not held, f"this command is not complete: {held}"


_BASH_KNOWS = re.compile(r"<<|[({`]|\b(?:for|while|until|if|case|select)\b|[|&]\s*$")
"""Syntax that may end lines later. Without it, a command is complete when its quotes are closed."""


def _whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    if not _BASH_KNOWS.search(text):
        try:
            shlex.split(text, comments=True)
        except ValueError:
            return False
        return True
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True)
    return done.returncode == 0 and not done.stderr
