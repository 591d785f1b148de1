"""Help for groups of commands. A verb's own help comes from argparse."""

from __future__ import annotations

from aliquot.cli.framework import streams
from aliquot.cli.framework.command_model import CliCommand, capital
from aliquot.cli.framework.parser import ParsedCommand


def show(found: ParsedCommand) -> int:
    """Prints a group's help: on stdout if it was asked for, else on stderr with the exit code of a usage error."""
    text = group_help(found.command, found.prog)
    (streams.result if found.help_only else streams.note)(text.rstrip("\n"))
    return 0 if found.help_only else 2


def group_help(group: CliCommand, prog: str) -> str:
    """What a group can do, one line per verb."""
    width = max(len(c.name) for c in group.children)
    lines = [f"usage: {prog} COMMAND [options]", "", _sentence(group.help)]
    if group.text:
        lines += ["", *_wrapped(group.text)]
    lines += ["", "commands:"]
    lines += [f"  {c.name:<{width}}  {c.help}" for c in group.children if not c.hidden]
    if group.examples:
        lines += ["", "examples:", *(f"  {line}" for line in group.examples)]
    if prog == "aliquot":
        from aliquot.cli.command_table import EXIT_CODES

        lines += ["", "exit codes:", *(f"  {code:<4} {meaning}" for code, meaning in EXIT_CODES)]
    lines += ["", f"{prog} COMMAND --help says more."]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return capital(text).rstrip(".") + "."


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100)
