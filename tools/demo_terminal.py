"""What the demonstrations have in common: how a command is shown, and patience on a slow machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from subprocess import CalledProcessError

from aliquot.cli.framework import color as colour

TRIES = 5
"""How often something is waited for before a machine counts as stuck."""


def show(line: str) -> None:
    """Show a command as a person types it, bold where that is wanted."""
    print("\n" + colour.paint(f"$ {line}", colour.BOLD, colour.wanted()), flush=True)


def patiently(wait: Callable[[], object]) -> None:
    """Wait as often as it takes on a slow machine. ``wait`` raises AssertionError each time that its time is over."""
    for n in range(1, TRIES + 1):
        try:
            wait()
            return
        except AssertionError:
            if n == TRIES:
                raise
            print(f"# slow machine, trying longer ({n + 1} of {TRIES})", flush=True)


def told(story: Callable[[], None]) -> int:
    """Tell a story. Returns 1 where it does not go as told, with what went wrong and without a traceback."""
    try:
        story()
    except (AssertionError, CalledProcessError) as error:
        print(f"\nnot as told: {error}", file=sys.stderr)
        return 1
    return 0
