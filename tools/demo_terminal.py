"""Helpers of the demonstrations: they show commands, and wait longer on a slow host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from subprocess import CalledProcessError

from aliquot.cli.framework import color as colour

TRIES = 5
"""How often a wait is repeated before it fails."""


def show(line: str) -> None:
    """Show a command as a user types it, in bold if color is wanted."""
    print("\n" + colour.paint(f"$ {line}", colour.BOLD, colour.wanted()), flush=True)


def patiently(wait: Callable[[], object]) -> None:
    """Repeat a wait on a slow host. ``wait`` raises AssertionError each time that its time is over."""
    for n in range(1, TRIES + 1):
        try:
            wait()
            return
        except AssertionError:
            if n == TRIES:
                raise
            print(f"# slow host, trying longer ({n + 1} of {TRIES})", flush=True)


def reported(story: Callable[[], None]) -> int:
    """Run a story. Returns 1 if a step fails, and prints the failure without a traceback."""
    try:
        story()
    except (AssertionError, CalledProcessError) as error:
        print(f"\nfailed: {error}", file=sys.stderr)
        return 1
    return 0
