"""The question before GPUs change: a person sees what would be done and answers; scripts are not asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from aliquot.cli.framework import color as colour
from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import ApplyInterruptedError, UsageError

DECLINED = "not applied: nothing was changed"
DECLINED_EXIT = 10
"""Changes are still pending."""

_QUESTION = "Apply this plan? [y/N] "
_STDIN = 0


def confirmed(args: Args, plan: Callable[[bool], str]) -> bool:
    """Return whether to go on. A person at a terminal is shown the ``plan`` (it takes whether to colour it) and asked,
    unless ``--yes`` was typed. Raises CutOffError where a signal comes instead of an answer, UsageError where the
    question cannot be shown: it would be waited for, unseen.
    """
    if args.yes or not is_interactive():
        return True
    try:
        if not _write_terminal(f"{plan(colour.welcome())}\n{_QUESTION}"):
            raise UsageError(
                "the plan cannot be shown: stderr is no terminal, and the one that is stdin can only be read; "
                "nothing was changed",
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
    """Return whether a person is at stdin."""
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):  # closed
        return False


def _write_terminal(text: str) -> bool:
    """Write to the person's terminal, and return whether it took the text: stderr or, where that goes elsewhere, the
    one that is stdin, which may be open for reading only (``</dev/tty``).
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
