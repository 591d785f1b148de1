"""Help for groups of commands. argparse prints the help of a verb."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.framework import streams
from aliquot.cli.framework.command_model import CliCommand, capital
from aliquot.cli.framework.parser import ParsedCommand


def show(found: ParsedCommand) -> int:
    """Print the help of a group: to stdout if it was requested, else to stderr with the exit code for invalid input. A
    program in Go takes a command line without a verb as a request for help.
    """
    text = group_help(found.command, found.prog)
    requested = found.help_only or found.command.go_flags
    (streams.result if requested else streams.error)(text.rstrip("\n"))
    return 0 if requested else 2


def group_help(group: CliCommand, prog: str) -> str:
    """Return the help of a group, with one line for each verb."""
    width = max(len(c.name) for c in group.children)
    lines = [f"usage: {prog} COMMAND [options]", "", f"{capital(group.help).rstrip('.')}."]
    if group.text:
        lines += ["", *_wrapped(group.text)]
    for title, commands in _sections(group):
        lines += ["", f"{title}:", *(f"  {c.name:<{width}}  {c.help}" for c in commands if not c.hidden)]
    if group.examples:
        lines += ["", "examples:", *(f"  {line}" for line in group.examples)]
    if prog == "aliquot":
        from aliquot.cli.command_table import EXIT_CODES

        lines += ["", "exit codes:", *(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES)]
    lines += ["", f"More about a command: {prog} help COMMAND"]
    return "\n".join(lines) + "\n"


def _sections(group: CliCommand) -> Sequence[tuple[str, Sequence[CliCommand]]]:
    """Return the titles under which help lists the verbs of a group."""
    from aliquot.cli.command_table import ROOT, SECTIONS

    return SECTIONS if group is ROOT else [("commands", group.children)]


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100)
