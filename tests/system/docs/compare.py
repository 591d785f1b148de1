"""Comparison of printed output with the output that a page shows."""

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
    """Return a line without the parts that vary between runs. Columns are compared only in lines without these."""
    text = line.rstrip()
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return " ".join(text.split()) if text != line.rstrip() else text


def agrees(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Report whether the printed lines match the shown ones. ``...`` stands for any lines, or for any text within a
    line.
    """
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in normal(line).split("...")) + "\n"
    return re.fullmatch(pattern, "".join(f"{normal(line)}\n" for line in trimmed(printed))) is not None


_NOISE = re.compile(r'^time=".*level=warning msg="Failed to add conmon')
"""Printed by Podman if control groups are read-only."""


def trimmed(lines: list[str]) -> list[str]:
    """Remove empty lines at the end, and lines that only a build host prints."""
    lines = [line for line in lines if not _NOISE.match(line)]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines
