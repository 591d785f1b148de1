"""The words of a command line against the table. Only the parser of the verb that was typed is ever built."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import NoReturn

from aliquot.cli.framework.command_model import CliCommand, CommandOption, capital
from aliquot.errors import UsageError
from aliquot.foundation.decimals import decimal

Args = argparse.Namespace
_TRUE = ("1", "t", "true", "y", "yes")
_FALSE = ("0", "f", "false", "n", "no", "")


class ParsedCommand:
    """A command, the names that led to it, and the words that are left, options given before the verb among them."""

    __slots__ = ("command", "help_only", "path", "rest", "version")

    def __init__(
        self,
        command: CliCommand,
        path: tuple[str, ...],
        rest: list[str],
        *,
        help_only: bool = False,
        version: bool = False,
    ) -> None:
        self.command = command
        self.path = path
        self.rest = rest
        self.help_only = help_only
        self.version = version

    @property
    def prog(self) -> str:
        return " ".join(self.path)


def find(root: CliCommand, words: Sequence[str]) -> ParsedCommand:
    """The command that the words name. Options of a group may stand before the verb: ``aliquot --node N show``.

    Raises UsageError for a verb that is not in the table.
    """
    command, rest = root, list(words)
    path: tuple[str, ...] = (root.name,)
    early: list[str] = []
    while command.children:
        rest = _double_dashed(command, rest) if command.go_flags else rest
        while rest and rest[0].startswith("-") and rest[0] not in ("-h", "--help"):
            early += _take(command, path, rest)
        if "--version" in early:
            return ParsedCommand(command, path, [], version=True)
        if not rest or rest[0] in ("-h", "--help"):
            return ParsedCommand(command, path, early, help_only=bool(rest))
        if rest[0] == "help":
            rest = [*rest[1:], "--help"]
            continue
        child = command.child(rest[0])
        if child is None:
            raise _unknown(command, path, rest[0])
        command, path = child, (*path, rest.pop(0))
    return ParsedCommand(command, path, early + rest)


def _double_dashed(group: CliCommand, words: list[str]) -> list[str]:
    """Rewrite long options with one dash to our own form."""
    long = {name[1:] for child in (group, *group.children) for o in child.options for name in o.names if len(name) > 2}
    long.add("-help")
    return [f"-{word}" if word.partition("=")[0] in long else word for word in words]


def _take(group: CliCommand, path: tuple[str, ...], rest: list[str]) -> list[str]:
    """Takes one option of the group, with its value, from the front of ``rest``."""
    word = rest.pop(0)
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    option = next((o for o in group.options if name in o.names), None)
    if option is None:
        raise UsageError(f"{' '.join(path)} has no option {name}", next_step=f"{' '.join(path)} --help")
    if not option.takes_value or "=" in word or (name != word and not word.startswith("--")):
        return [word]
    if not rest:
        raise UsageError(f"{name} needs a value", next_step=f"{' '.join(path)} --help")
    return [word, rest.pop(0)]


def _unknown(group: CliCommand, path: tuple[str, ...], word: str) -> UsageError:
    import difflib

    prog = " ".join(path)
    names = [c.name for c in group.children if not c.hidden]
    close = [name for name in difflib.get_close_matches(word, names) if name[:1] == word[:1]]
    error = UsageError(
        f"{prog} has no command {word!r}",
        details=(f"did you mean {close[0]}?",) if close else (f"it has {', '.join(names)}",),
        next_step=f"{prog} {close[0]} --help" if close else f"{prog} --help",
    )
    error.code = "UNKNOWN_COMMAND"
    return error


def typed_node(words: Sequence[str]) -> str:
    """The node that ``--node`` names on a command line, unless the variable says the same anyway."""
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--node":
            value = value if equals else words[n + 1] if n + 1 < len(words) else ""
            return "" if os.environ.get("ALIQUOT_SIM") == value else value
    return ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if "--output" in message and "invalid choice: 'markdown'" in message:
            from aliquot.cli.command_table import ticketed

            raise UsageError(
                f"{self.prog} says nothing in markdown: {', '.join(ticketed())} do",
                next_step=f"{self.prog} --help",
            )
        raise UsageError(f"{self.prog}: {message}", next_step=f"{self.prog} --help")


def _columns() -> int:
    """How wide help may be. argparse would ask shutil, which costs more to import than argparse itself."""
    if typed := decimal(os.environ.get("COLUMNS", ""), 5):
        return typed
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _wrapped(text: str) -> str:
    if not text:
        return ""
    import textwrap

    return textwrap.fill(text, min(_columns() - 2, 100))


def parser(command: CliCommand, prog: str) -> argparse.ArgumentParser:
    """The argparse parser of one verb."""
    text = "\n\n".join(
        filter(
            None,
            [
                f"{capital(command.help)}{'' if command.help.endswith('?') else '.'}",
                _wrapped(command.text),
            ],
        )
    )
    examples = "".join(f"  {line}\n" for line in command.examples)
    end = (f"exit codes: {command.exits}\n" if command.exits else "") + (f"examples:\n{examples}" if examples else "")
    made = _Parser(
        prog=prog,
        description=text,
        epilog=end or None,
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    for option in command.options:
        _add(made, option)
    return made


def _add(made: argparse.ArgumentParser, option: CommandOption) -> None:
    text = option.help + (f" (default {option.default})" if option.default else "")
    text += f" [${option.env}]" if option.env else ""
    more: dict[str, object] = {"help": text if not option.hidden else argparse.SUPPRESS}
    if option.kind == "flag":
        made.add_argument(*option.names, action="store_true", dest=option.destination, help=text)
        return
    if option.choices:
        more["choices"] = option.choices
    if option.number:
        more["type"] = {"int": int, "float": float}[option.number]
    if option.kind == "optional":
        more |= {"nargs": "?", "const": more.get("type", str)(option.implied)}  # type: ignore[operator]
    if option.metavar and not option.choices:
        more["metavar"] = option.metavar
    if option.positional:
        more["nargs"] = "*" if option.kind == "many" else None if option.required else "?"
        made.add_argument(option.names[0], **more)  # type: ignore[arg-type]
        return
    if option.kind == "repeat":
        more["action"] = "append"
    if option.default is not None and not option.env:
        more["default"] = option.default
    made.add_argument(*option.names, dest=option.destination, required=option.required, **more)  # type: ignore[arg-type]


def arguments(found: ParsedCommand) -> Args:
    """The parsed options of the command, environment variables filled in. ``args.verb`` is the command's own name.

    Raises UsageError. ``--help`` prints and raises SystemExit(0) as argparse does.
    """
    made = parser(found.command, found.prog)
    # Plain argparse takes no words of a list after an option in between: "attach VM --live DEVICE".
    many = any(option.kind == "many" for option in found.command.options)
    words = _valued(found)
    args = made.parse_intermixed_args(words) if many else made.parse_args(words)
    args.verb = found.path[-1]
    args.prog = found.prog
    args.typed_node = typed_node(found.rest)
    for option in found.command.options:
        given = getattr(args, option.destination)
        if option.env and (given is None or given is False):  # 0 was typed
            setattr(args, option.destination, _from_environment(option))
    return args


def _valued(found: ParsedCommand) -> list[str]:
    """The words with the implied value behind each option that was given without one: argparse would take any next word
    for it. A number behind it is its value, so that ``--watch 1`` and ``--watch=1`` are the same.
    """
    implied = {n: o.implied for o in found.command.options if o.kind == "optional" for n in o.names}
    following = [*found.rest[1:], ""]
    return [
        f"{word}={implied[word]}" if word in implied and not _is_number(after) else word
        for word, after in zip(found.rest, following, strict=False)
    ]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _from_environment(option: CommandOption) -> object:
    """The variable's value, else the default. Raises UsageError."""
    value = os.environ.get(option.env, "")
    if option.kind == "flag":
        if value.lower() not in _TRUE + _FALSE:
            raise UsageError(f"{option.env}={value} is neither true nor false", next_step=f"unset {option.env}")
        return value.lower() in _TRUE
    if option.number:
        return _number(option, value or option.default)
    if not value:
        return option.default
    if option.choices and value not in option.choices:
        choices = ", ".join(option.choices)
        raise UsageError(f"{option.env}={value}: choose from {choices}", next_step=f"unset {option.env}")
    return value


def _number(option: CommandOption, text: str | None) -> object:
    """Raises UsageError."""
    if text is None:
        return None
    try:
        return int(text) if option.number == "int" else float(text)
    except ValueError as error:
        raise UsageError(f"{option.env}={text} is no number", next_step=f"unset {option.env}") from error
