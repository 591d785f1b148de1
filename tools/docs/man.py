"""The man page scripts/aliquot.1, from the table of commands."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.cli.command_table import EXIT_CODES, ROOT, SECTIONS
from aliquot.cli.framework.command_model import COMMON, NODE, OUTPUT, CliCommand, CommandOption, capital

ENVIRONMENT = (
    ("ALIQUOT_SIM", "The simulated node of every verb, as --sim names it."),
    ("ALIQUOT_STATE_DIR", "The directory of the simulated nodes."),
    ("ALIQUOT_DRIVER_HANGS_S", "Seconds after which a driver call that has not returned is reported; 30 by default."),
    ("ALIQUOT_DEBUG", "Print the traceback of an internal error."),
    ("NO_COLOR", "Print neither color nor progress bars, if it is set."),
)


def page() -> str:
    """Return the whole page."""
    lines = [
        r".\" Made by tools/build_docs.py from src/aliquot/cli/command_table.py: change it there.",
        '.TH ALIQUOT 1 "" "Aliquot" "User Commands"',
        ".SH NAME",
        r"aliquot \- partition NVIDIA GPUs",
        ".SH SYNOPSIS",
        ".B aliquot",
        r".I command",
        r".RI [ options ]",
        ".br",
        ".B aliquot help",
        ".I command",
        ".SH DESCRIPTION",
        _text(ROOT.help),
        _text("Results go to stdout, everything else to stderr. The web pages in docs/ are the manual."),
        ".SH COMMON OPTIONS",
        *_options((OUTPUT, NODE, *COMMON)),
    ]
    for title, commands in SECTIONS:
        lines.append(f".SH {title.upper()}")
        for command in commands:
            lines += _command(command, "aliquot")
    lines += [".SH EXIT STATUS"]
    for code, meaning in EXIT_CODES:
        lines += [".TP", f".B {code}", _text(f"{capital(meaning)}.")]
    lines += [".SH ENVIRONMENT"]
    for name, meaning in ENVIRONMENT:
        lines += [".TP", f".B {_text(name)}", _text(meaning)]
    return "\n".join([*lines, ".SH SEE ALSO", r".BR nvidia\-smi (1)"]) + "\n"


def _command(command: CliCommand, prog: str) -> Iterator[str]:
    path = f"{prog} {command.name}"
    yield f".SS {_text(path)}"
    yield _text(f"{capital(command.help)}.")
    for sentence in filter(None, (command.text, command.needs)):
        yield from (".PP", _text(sentence))
    yield from _options([o for o in command.options if o not in (OUTPUT, NODE)])
    if command.exits:
        yield from (".PP", _text(f"Exit codes: {command.exits}."))
    if command.examples:
        yield from (".PP", ".nf", *(_text(f"    {line}") for line in command.examples), ".fi")
    for child in command.children:
        if not child.hidden:
            yield from _command(child, path)


def _options(options: tuple[CommandOption, ...] | list[CommandOption]) -> Iterator[str]:
    for option in options:
        more = [option.help]
        more += [f"One of {', '.join(option.choices)}"] if option.choices else []
        more += [f"Default: {option.default}"] if option.default else []
        more += [f"Environment: {option.env}"] if option.env else []
        yield from (".TP", f".B {_text(option.shown)}", _text(f"{'. '.join(map(_sentence, more))}."))


def _sentence(text: str) -> str:
    """Return a text with a capital first letter, unless it begins with a value: ``auto: ...``."""
    return text if text.split()[0].endswith(":") else capital(text)


def _text(text: str) -> str:
    """Return a text without control lines and with plain hyphens."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
