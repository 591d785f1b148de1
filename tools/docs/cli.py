"""docs/cli.md, from the table of commands."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.cli.command_table import EXIT_CODES, ROOT
from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption, capital

HEAD = """\
# The command line

<!-- Made by tools/build_docs.py from src/aliquot/cli/command_table.py: change it there. -->

Results go to stdout, everything else to stderr. Every verb takes `-o text|json|yaml`, some `-o markdown` too; the JSON
and YAML shapes carry `apiVersion: aliquot/v1`. `--node SIM` or `ALIQUOT_SIM=SIM` points any verb at a simulated node.
Colour and progress bars appear on a terminal only, and never with `NO_COLOR` set. `ALIQUOT_STATE_DIR` says where
simulated nodes live.
"""

HANGING = """\
## A driver that hangs

A driver in trouble (XID 79, 119 or 154 in the kernel log) may keep a caller waiting for ever. After 30 seconds
(`ALIQUOT_DRIVER_HANGS_S` is another number) a command says which call has not returned, on which GPU and for how long.
Ctrl-C, SIGTERM and SIGHUP end a command that only reads within a second. A change waits for its call, because going
back needs the driver too; once the call hangs, a signal ends the change as well: the journal has what was begun, and
when the driver answers, the same command again finishes it or goes back. A reset, or virtual functions, may take up
to 185 seconds before the call counts as hung: after 30 seconds, a second Ctrl-C ends such a change at once. The kernel
may keep a thread that waits inside it, and with it the process; then only the end of the wait, or a reboot, ends the
process.\
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD, "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    lines += ["", HANGING]
    for command in ROOT.children:
        if not command.hidden:
            lines += ["", *_command(command, "aliquot", "##")]
    return "\n".join(lines) + "\n"


def _command(command: CliCommand, prog: str, level: str) -> Iterator[str]:
    path = f"{prog} {command.name}"
    yield f"{level} {path}"
    yield ""
    yield f"{capital(command.help)}." + (f" {command.text}" if command.text else "")
    rows = [_row(option) for option in command.options if not option.hidden and option not in EVERYWHERE]
    if rows:
        yield from ("", "| option | meaning |", "|---|---|", *rows)
    if command.exits:
        yield from ("", f"Exit codes: {command.exits}.")
    if command.examples:
        yield from ("", "```console", *(f"$ {line}" for line in command.examples), "```")
    for child in command.children:
        yield ""
        yield from _command(child, path, level + "#")


def _row(option: CommandOption) -> str:
    more = [option.help]
    more += [f"one of {', '.join(option.choices)}"] if option.choices else []
    more += [f"default {option.default}"] if option.default else []
    more += [f"or ${option.env}"] if option.env else []
    return f"| `{option.shown}` | {'; '.join(more)} |".replace("|yaml", "\\|yaml")
