"""Is what a command printed what the page shows?"""

from __future__ import annotations

import re

_VOLATILE = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<time>"),
    (re.compile(r"\b(localhost|127\.0\.0\.1):\d+"), r"\1:<port>"),
    (re.compile(r"\b(pid|PID|process) \d+"), r"\1 <n>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|seconds|minutes)\b(?! ago)"), "<t>"),
    (re.compile(r"(?<=\s)\d+[smhd](\d+[smhd])?(?=\s|$)"), "<t>"),
    (re.compile(r"/tmp/[\w./-]*?(aq|aliquot-slurm)-[\w./-]+"), "<folder>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b(podman|docker|slurm) \d+(\.\d+)+"), r"\1 <version>"),
    (re.compile(r"token=[\w-]+"), "token=<token>"),
]


def normal(line: str) -> str:
    """A line without what differs from run to run. Its columns count only where nothing in it was replaced."""
    text = line.rstrip()
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return " ".join(text.split()) if text != line.rstrip() else text


def agrees(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the lines printed are those shown; ``...`` stands for any lines, inside a line for anything."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in normal(line).split("...")) + "\n"
    return re.fullmatch(pattern, "".join(f"{normal(line)}\n" for line in trimmed(printed))) is not None


_NOISE = re.compile(r'^time=".*level=warning msg="Failed to add conmon')
"""Podman where control groups are read-only."""


def trimmed(lines: list[str]) -> list[str]:
    """Without empty lines at the end, and without what a build machine alone says."""
    lines = [line for line in lines if not _NOISE.match(line)]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
