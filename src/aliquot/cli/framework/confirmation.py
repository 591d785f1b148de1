"""The question before GPUs change: a user at a terminal sees the plan and answers; scripts are not asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from aliquot.cli.framework import color as colors
from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import ApplyInterruptedError, UsageError

DECLINED = "not applied: nothing was changed"
DECLINED_EXIT = 10
"""Changes are still pending."""

_QUESTION = "Apply this plan? [y/N] "
_STDIN = 0


def confirmed(args: Args, plan: Callable[[bool], str]) -> bool:
    """Report whether to go on. A user at a terminal sees the ``plan`` (its argument: whether to color it) and is asked,
    unless ``--yes`` was typed. Raises CutOffError if a signal arrives instead of an answer, and UsageError if the
    question cannot be shown: Aliquot would wait for an answer to a question that is invisible.
    """
    if args.yes or not is_interactive():
        return True
    try:
        if not _write_terminal(f"{plan(colors.welcome())}\n{_QUESTION}"):
            raise UsageError(
                "the plan cannot be shown: stderr is not a terminal, and the terminal of stdin is read-only; nothing "
                "was changed",
                next_step="add --yes to go on without a question",
            )
        answer = sys.stdin.buffer.readline()
    except KeyboardInterrupt as stop:
        _write_terminal("\n")
        error = ApplyInterruptedError.from_signal(getattr(stop, "number", 2))
        error.brief += "; nothing was changed"
        raise error from None
    if not answer.endswith(b"\n"):  # Ctrl-D leaves the cursor behind the question
        _write_terminal("\n")
    return answer.strip().lower() in (b"y", b"yes")


def is_interactive() -> bool:
    """Report whether stdin is a terminal."""
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # closed
        return False


def _write_terminal(text: str) -> bool:
    """Write to the user's terminal, and report whether that worked. The terminal is stderr or, if that is redirected,
    the one of stdin, which may be open only for reading (``</dev/tty``).
    """
    text = streams.plain(text)
    if streams.watched():
        sys.stderr.write(text)
        sys.stderr.flush()
        return True
    with suppress(OSError):
        os.write(_STDIN, text.encode())
        return True
    with suppress(OSError), open(os.open("/dev/tty", os.O_WRONLY), "wb") as stream:
        stream.write(text.encode())
        stream.flush()
        return True
    return False
