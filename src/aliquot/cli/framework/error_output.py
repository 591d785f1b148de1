"""How a failure is told: one headline, what is in the way, and the next command; or one JSON object."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliquot.cli.framework import next_command as following
from aliquot.cli.framework import streams
from aliquot.errors import AliquotError

_WORDS = {1: "internal fault", 2: "error", 20: "blocked", 30: "drift", 40: "hardware"} | dict.fromkeys(
    (129, 130, 143), "stopped"
)


def wanted_format(words: Sequence[str]) -> str:
    """The output format that a command line asks for, read before it is parsed: parsing may be what fails."""
    if group(words) == "mig-parted":
        return "text"
    for n, word in enumerate(words):
        name, _, value = word.partition("=")
        if word in ("-o", "--output") and n + 1 < len(words):
            value = words[n + 1]
        elif word.startswith("-o") and not word.startswith("--"):
            value = word[2:].lstrip("=")
        elif name != "--output":
            continue
        if value in ("json", "yaml"):
            return value
    return "text"


def group(words: Sequence[str]) -> str:
    """The first word that is not an option (or its value)."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("--node", "-o", "--output"):
            skip = True
        elif not word.startswith("-"):
            return word
    return ""


def exit_code(error: AliquotError, group: str) -> int:
    """The error's own code; under ``mig-parted`` that tool's: 3 for an unknown verb, else 1."""
    if group == "mig-parted":
        return 3 if error.code == "UNKNOWN_COMMAND" else 1
    return error.exit_code


def report(error: AliquotError, form: str, node: str = "") -> None:
    """Prints an error on stderr. ``node`` is the simulated node that was typed: the next command needs it too."""
    if form == "text":
        streams.note(text(error, node))
        return
    from aliquot.cli.framework.output import encoded

    streams.note(encoded(error.document(), form))


def text(error: AliquotError, node: str = "") -> str:
    """The error for people."""
    lines = [f"{_WORDS.get(error.exit_code, 'error')}[{error.code}]: {error.brief}"]
    lines += [f"  {line}" for detail in error.details for line in detail.splitlines()]
    if error.next_step:
        lines.append(f"  next     {following.addressed(error.next_step, node)}")
    return "\n".join(lines)


def interrupted(words: Sequence[str]) -> None:
    """Ctrl-C. What an apply had begun is in the journal."""
    begun = group(words) in ("apply", "restore", "mig-parted")
    streams.note("interrupted" + (": the same command again goes on from where it stopped" if begun else ""))


def internal(exception: BaseException, form: str) -> None:
    """A defect of ours: one line, how to report it, and the traceback only on request."""
    if os.environ.get("ALIQUOT_DEBUG"):
        import traceback

        traceback.print_exception(exception)
    trace = exception.__traceback__
    where = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "aliquot" in code.co_filename:
            where = f" ({code.co_filename.rpartition('aliquot/')[2]}:{trace.tb_lineno})"
        trace = trace.tb_next
    error = AliquotError(
        f"{type(exception).__name__}: {' '.join(str(exception).split())[:300]}{where}",
        next_step="run it again with ALIQUOT_DEBUG=1 and report the traceback, with the output of: aliquot version",
    )
    report(error, form)
