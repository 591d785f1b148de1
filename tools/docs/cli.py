"""docs/cli.md, from the table of commands."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.cli.command_table import EXIT_CODES, ROOT
from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption, capital

HEAD = """\
# The command line

<!-- Made by tools/build_docs.py from src/aliquot/cli/command_table.py: change it there. -->

Results go to stdout, everything else to stderr. Every verb takes `-o text|json|yaml`, some `-o markdown` too; the JSON
and YAML shapes carry `apiVersion: aliquot/v1`. `--sim NAME` or `ALIQUOT_SIM=NAME` points any verb at a simulated node.
Every verb but those of `mig-parted` and `vgpu-dm` also takes `-q` (print only results and errors), `-v` (also print
the time of driver calls and of the steps of a change) and `--color auto|always|never`. With `auto`, color and progress
bars appear only on a terminal, and not if `NO_COLOR` is set. `ALIQUOT_STATE_DIR` is the directory of the simulated
nodes. `aliquot help VERB` prints the help of a verb.
"""

HANGING = """\
## A driver that hangs

A failed driver (XID 79, 119 or 154 in the kernel log) may never return from a call. After 30 seconds
(`ALIQUOT_DRIVER_HANGS_S` sets another number) a command reports the call, its GPU and its duration. Ctrl-C, SIGTERM and
SIGHUP end a command that only reads within a second.

A change waits for its call, because a rollback needs the driver too. As soon as the call counts as hung, a signal ends
the change as well. The journal has the started actions: when the driver answers, run the same command again to finish
the change or roll it back. A reset, or a change of virtual functions, counts as hung only after up to 185 seconds.
After 30 seconds, a second Ctrl-C ends such a change at once.

The kernel may keep a thread that waits inside it, and with it the process. Then only the end of the wait, or a reboot,
ends the process.\
"""


def page() -> str:
    """Return the whole page."""
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
    yield " ".join(filter(None, (f"{capital(command.help)}.", command.text, command.needs)))
    rows = [_row(option) for option in command.options if option not in EVERYWHERE]
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
