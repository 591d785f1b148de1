"""``--wait-for-lock``: wait while another process changes the node's GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from aliquot.cli.framework import streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import LockedError, UsageError
from aliquot.foundation.lock import holder
from aliquot.foundation.paths import directories

_POLL_S = 0.2


def run_unlocked(command: Callable[[Args], int], args: Args) -> int:
    """Run a command once the node's lock is free, or once the time is up, when it reports who has the lock.

    The command starts only then, so that it plans for the GPUs as the other process left them, and because an open
    driver session would block a reset by the other process. If it meets the lock after all (LockedError), it has
    changed nothing and starts again. Raises UsageError, and what the command raises.
    """
    if not 0 <= args.wait_for_lock < float("inf"):
        raise UsageError("--wait-for-lock takes seconds, 0 or more", next_step=f"{args.prog} --help")
    lock = os.path.join(directories(args.sim)[0], "lock")
    deadline = time.monotonic() + args.wait_for_lock
    reported = ""
    while True:
        left = deadline - time.monotonic()
        busy = holder(lock)
        if not busy or left <= 0:
            try:
                return command(args)
            except LockedError as error:
                if left <= 0 or _reads_stdin(args):
                    raise
                busy = error.holder
        if busy != reported:
            streams.note(f"waiting, {left:.0f} s at most, for {busy}, which is changing this node's GPUs")
            reported = busy
        time.sleep(max(0.0, min(_POLL_S, left)))


def _reads_stdin(args: Args) -> bool:
    """Report whether the command has read its input from stdin, which cannot be read again."""
    return "-" in (getattr(args, "file", None), getattr(args, "checkpoint", None))
