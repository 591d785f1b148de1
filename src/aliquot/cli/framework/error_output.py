"""Errors as text: one headline, the details, and the next command; or one JSON object."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import streams
from aliquot.cli.framework.command_model import COMMON, EVERYWHERE
from aliquot.errors import AliquotError

_WORDS = {1: "internal error", 2: "error", 20: "blocked", 30: "drift", 40: "hardware"} | dict.fromkeys(
    (129, 130, 143), "stopped"
)
_BEFORE_VALUE = {name for option in (*EVERYWHERE, *COMMON) if option.takes_value for name in option.spellings}
"""The options that may stand before the verb and take the next word."""
COMPATIBLE = ("mig-parted", "vgpu-dm")
"""The command lines of NVIDIA's tools, which have the exit codes of the originals and only text as output."""


def wanted_format(words: Sequence[str]) -> str:
    """Return the output format of a command line that is not parsed yet: parsing may be what fails."""
    if group(words) in COMPATIBLE:
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
    """Return the first word that is neither an option nor its value."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _BEFORE_VALUE:
            skip = True
        elif not word.startswith("-"):
            return word
    return ""


def exit_code(error: AliquotError, group: str) -> int:
    """Return the exit code of an error; under COMPATIBLE that of the originals: 3 for an unknown verb, else 1."""
    if group in COMPATIBLE:
        return 3 if error.code == "UNKNOWN_COMMAND" else 1
    return error.exit_code


def report(error: AliquotError, form: str, node: str = "") -> None:
    """Print an error on stderr. ``node`` is the simulated node that was typed: the next command needs it too."""
    if form == "text":
        streams.error(text(error, node))
        return
    from aliquot.cli.framework.output import encoded

    streams.error(encoded(error.document(), form))


def text(error: AliquotError, node: str = "") -> str:
    """Return the error as text."""
    lines = [f"{_WORDS.get(error.exit_code, 'error')}[{error.code}]: {error.brief}"]
    lines += [f"  {line}" for detail in error.details for line in detail.splitlines()]
    if error.next_step:
        lines.append(f"  next     {next_commands.addressed(error.next_step, node)}")
    return "\n".join(lines)


def interrupted(words: Sequence[str]) -> None:
    """Report Ctrl-C. The journal has the changes that were started."""
    begun = group(words) in ("apply", "restore", *COMPATIBLE)
    streams.error("interrupted" + (": the same command again goes on from where it stopped" if begun else ""))


def internal(exception: BaseException, form: str) -> None:
    """Report a defect of Aliquot: one line, how to report it, and with ALIQUOT_DEBUG the traceback."""
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
