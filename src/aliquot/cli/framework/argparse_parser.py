"""The argparse parser of one verb, and the form of its help. Only the parser of the verb that was typed is built."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import NoReturn

from aliquot.cli.framework.command_model import COMMON, EVERYWHERE, TICKETS, CliCommand, CommandOption, capital
from aliquot.errors import UsageError
from aliquot.foundation.decimals import decimal

_COMMON = (*TICKETS, *EVERYWHERE, *COMMON)


_ELSEWHERE = {("aliquot apply", "--dry-run"): "aliquot plan --help"}
"""Options that another verb stands for."""
_UNKNOWN = "unrecognized arguments: "


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if "--output" in message and "invalid choice: 'markdown'" in message:
            from aliquot.cli.command_table import ticketed

            raise UsageError(
                f"{self.prog} has no markdown output: use it with {', '.join(ticketed())}",
                next_step=f"{self.prog} --help",
            )
        known = not message.startswith(_UNKNOWN)
        details, step = self._guess([] if known else message.removeprefix(_UNKNOWN).split())
        raise UsageError(f"{self.prog}: {message}", details=details, next_step=step)

    def _guess(self, words: list[str]) -> tuple[tuple[str, ...], str]:
        """Return what words that the verb does not take may stand for, and the next command."""
        import difflib
        from shlex import quote

        first = words[0].partition("=")[0] if words else ""
        step = _ELSEWHERE.get((self.prog, first), f"{self.prog} --help")
        if first.startswith("--"):
            known = [name for name in self._option_string_actions if name.startswith("--")]
            close = difflib.get_close_matches(first, known, 1)
            return tuple(f"did you mean {name}?" for name in close), step
        if len(words) == 1 and "--file" in self._option_string_actions and os.path.isfile(first):
            return (), f"{self.prog} -f {quote(first)}"
        return (), step


def _columns() -> int:
    """Return the width of help. argparse would ask shutil, which costs more to import than argparse."""
    if typed := decimal(os.environ.get("COLUMNS", ""), 5):
        return typed
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap without splitting names at their hyphens."""
        import textwrap

        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Write the value once: ``-f, --file FILE``."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


def _wrapped(text: str) -> str:
    if not text:
        return ""
    import textwrap

    return textwrap.fill(text, min(_columns() - 2, 100), break_on_hyphens=False)


def argparse_parser(command: CliCommand, prog: str) -> argparse.ArgumentParser:
    """Return the argparse parser of a verb."""
    text = "\n\n".join(
        filter(
            None,
            [
                f"{capital(command.help)}.",
                _wrapped(command.text),
                command.needs,
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
    common = made.add_argument_group("common options")
    for option in command.accepted:
        _add(common if option in _COMMON else made, option)
    return made


def _add(made: argparse._ActionsContainer, option: CommandOption) -> None:
    text = option.help + (f" (default {option.default})" if option.default else "")
    text += f" [${option.env}]" if option.env else ""
    more: dict[str, object] = {"help": text}
    if option.kind == "flag":
        made.add_argument(*option.names, action="store_true", dest=option.destination, help=text)
        return
    if option.choices:
        more["choices"] = option.choices
    if option.number:
        more["type"] = _number_type(option)
    if option.kind == "optional":
        more |= {"nargs": "?", "const": more.get("type", str)(option.implied)}  # type: ignore[operator]
    if option.metavar:
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


def _number_type(option: CommandOption) -> Callable[[str], int | float]:
    """Return the function that converts the text of an option, and names the unit in its error."""
    convert: type[int | float] = {"int": int, "float": float}[option.number]
    kind = "a whole number" if convert is int else "a number"

    def converted(text: str) -> int | float:
        try:
            return convert(text)
        except ValueError:
            unit = " of seconds" if option.metavar == "SECONDS" else ""
            raise argparse.ArgumentTypeError(f"invalid value {text!r}: use {kind}{unit}") from None

    return converted
