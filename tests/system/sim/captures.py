"""Recorded terminal sessions: typed commands and their output."""

from __future__ import annotations

from pathlib import Path

CAPTURED = Path(__file__).resolve().parents[2] / "recorded/captured"


def sessions(file: str) -> list[tuple[str, str]]:
    """Return the commands without prompt, ``sudo`` and the recorder's remarks, each with its output."""
    found: list[tuple[str, list[str]]] = []
    for line in (CAPTURED / file).read_text().splitlines():
        if line.startswith("$ "):
            found.append((line[2:].partition("     (")[0].removeprefix("sudo ").strip(), []))
        elif found:
            found[-1][1].append(line)
    return [(command, "\n".join(lines) + "\n") for command, lines in found]


def answer(file: str, command: str, nth: int = 0) -> str:
    """Return the output of the nth run of a command."""
    return [text for typed, text in sessions(file) if typed == command][nth]
