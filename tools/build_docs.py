"""Make docs/cli.md from the table of commands.

Usage: python tools/build_docs.py [--check]     exit 1 if --check finds a difference
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from aliquot.cli.commands import EXIT_CODES, ROOT
from aliquot.cli.options import EVERYWHERE, Command, Option, capital

TARGET = Path(__file__).resolve().parent.parent / "docs/cli.md"
HEAD = """\
# The command line

<!-- Made by tools/build_docs.py from src/aliquot/cli/commands.py: change it there. -->

Results go to stdout, everything else to stderr. Every verb takes `-o text|json|yaml`; the JSON and YAML shapes carry
`apiVersion: aliquot/v1`. `--node SIM` or `ALIQUOT_SIM=SIM` points any verb at a simulated node. Colour appears on a
terminal only, and never with `NO_COLOR` set. `ALIQUOT_STATE_DIR` says where simulated nodes live.
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD, "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    for command in ROOT.children:
        if not command.hidden:
            lines += ["", *_command(command, "aliquot", "##")]
    return "\n".join(lines) + "\n"


def _command(command: Command, prog: str, level: str) -> Iterator[str]:
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


def _row(option: Option) -> str:
    more = [option.help]
    more += [f"one of {', '.join(option.choices)}"] if option.choices else []
    more += [f"default {option.default}"] if option.default else []
    more += [f"or ${option.env}"] if option.env else []
    return f"| `{option.shown}` | {'; '.join(more)} |".replace("|yaml", "\\|yaml")


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        current = TARGET.exists() and TARGET.read_text() == wanted
        print("docs/cli.md is current" if current else "docs/cli.md is stale: run python tools/build_docs.py")
        return 0 if current else 1
    TARGET.write_text(wanted)
    print(f"wrote {TARGET.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
