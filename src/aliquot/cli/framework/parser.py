"""Parse a command line by the table of commands: find the verb, then its options and their environment variables."""

from __future__ import annotations

import argparse
import itertools
import os
import re
from collections.abc import Sequence

from aliquot.cli.framework.argparse_parser import argparse_parser
from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption
from aliquot.errors import UsageError

Args = argparse.Namespace
_TRUE = ("1", "t", "true", "y", "yes")
_PASSWORD = re.compile(r"://[^/@\s]*@")
_RECORDED_CHARACTERS = 2000
_FALSE = ("0", "f", "false", "n", "no", "")


class ParsedCommand:
    """A command, the names that lead to it, and the remaining words, with the options typed before the verb."""

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
    """Return the command that the words name. Options of a group may stand before the verb: ``aliquot --sim N show``.
    Hidden aliases among the words that are left are replaced by the names of today.

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
    return ParsedCommand(command, path, _without_aliases(command.accepted, early + rest))


def _without_aliases(options: Sequence[CommandOption], words: list[str]) -> list[str]:
    """Return the words with each hidden alias replaced by the long name of its option.

    An alias may be the name of another option: that option keeps it for the values that its choices allow.
    """
    by_name = {name: option for option in options for name in option.names}
    by_alias = {alias: option for option in options for alias in option.aliases}
    end = words.index("--") if "--" in words else len(words)
    replaced = []
    for word, following in zip(words[:end], [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        option, other = by_alias.get(name), by_name.get(name)
        if option and not (other and (not other.choices or (value if equals else following) in other.choices)):
            word = f"{option.long_name}{equals}{value}"
        replaced.append(word)
    return replaced + words[end:]


def _double_dashed(group: CliCommand, words: list[str]) -> list[str]:
    """Rewrite long options with one dash to options with two."""
    long = {
        name[1:] for child in (group, *group.children) for o in child.options for name in o.spellings if len(name) > 2
    }
    long.add("-help")
    return [f"-{word}" if word.partition("=")[0] in long else word for word in words]


def _take(group: CliCommand, path: tuple[str, ...], rest: list[str]) -> list[str]:
    """Take one option of the group, with its value, from the front of ``rest``."""
    word = rest.pop(0)
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    option = next((o for o in group.accepted if name in o.spellings), None)
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
    return UsageError(
        f"{prog} has no command {word!r}",
        details=(f"did you mean {close[0]}?",) if close else (f"it has {', '.join(names)}",),
        next_step=f"{prog} {close[0]} --help" if close else f"{prog} --help",
        code="UNKNOWN_COMMAND",
    )


def typed_node(words: Sequence[str]) -> str:
    """Return the node that ``--sim`` names on a command line; "" if ALIQUOT_SIM names the same."""
    for n, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in NODE.spellings:
            value = value if equals else words[n + 1] if n + 1 < len(words) else ""
            return "" if os.environ.get("ALIQUOT_SIM") == value else value
    return ""


def typed_options(found: ParsedCommand) -> Args:
    """Return the options as they were typed, without environment variables. Raises UsageError."""
    return argparse_parser(found.command, found.prog).parse_args(found.rest)


def arguments(found: ParsedCommand) -> Args:
    """Return the parsed options of the command, with the values of environment variables.

    Raises UsageError. ``--help`` prints and raises SystemExit(0) as argparse does.
    """
    made = argparse_parser(found.command, found.prog)
    # Plain argparse takes no words of a list after an option in between: "attach VM --live DEVICE".
    many = any(option.kind == "many" for option in found.command.options)
    words = _valued(found)
    try:
        args = made.parse_intermixed_args(words) if many else made.parse_args(words)
    except UsageError as error:
        if split := next((f"{a}{b}" for a, b in itertools.pairwise(words) if a.endswith(",")), ""):
            error.details = (f"a list has no spaces: {split}",)
        raise
    args.verb = found.path[-1]
    args.prog = found.prog
    args.typed_node = typed_node(found.rest)
    args.recorded_words = recorded_words(found)
    for option in found.command.accepted:
        given = getattr(args, option.destination)
        if option.env and (given is None or given is False):  # 0 was typed
            setattr(args, option.destination, _from_environment(option))
    return args


def recorded_words(found: ParsedCommand) -> tuple[str, ...]:
    """Return the command line as records keep it: at most so long, without shell commands and passwords in URLs."""
    shell = {name for option in found.command.options if option.metavar == "COMMAND" for name in option.names}
    words = list(found.path)
    hidden = False
    for word in found.rest:
        name, equals, _ = word.partition("=")
        shown = "***" if hidden else f"{name}=***" if equals and name in shell else _PASSWORD.sub("://***@", word)
        hidden = not hidden and word in shell
        words.append(shown.encode(errors="replace").decode())
    if sum(map(len, words)) <= _RECORDED_CHARACTERS:
        return tuple(words)
    kept: list[str] = []
    while sum(map(len, kept)) + len(words[len(kept)]) <= _RECORDED_CHARACTERS:
        kept.append(words[len(kept)])
    return (*kept, "...")


def _valued(found: ParsedCommand) -> list[str]:
    """Return the words with the implied value behind each option that has none: argparse would take any next word as
    its value. A number is its value, so that ``--watch 1`` and ``--watch=1`` are the same.
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
    """Return the value of the variable, or the default. Raises UsageError."""
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
    """Convert the text. Raises UsageError."""
    if text is None:
        return None
    try:
        return int(text) if option.number == "int" else float(text)
    except ValueError as error:
        raise UsageError(f"{option.env}={text} is not a number", next_step=f"unset {option.env}") from error
