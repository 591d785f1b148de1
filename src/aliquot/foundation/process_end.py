"""How a process ends although a driver call does not return.

Python waits at its exit for every worker thread, and asyncio for those of its executor: a thread that waits inside the
driver would keep the process until something kills it, and a thread that waits inside the kernel beyond that.
"""

from __future__ import annotations

import logging
import os
import sys

from aliquot.errors import AliquotError
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report


def leave_if_hung(code: int, report: Report) -> None:
    """End the process at once if a driver call has not returned, and ``report`` the call. Everything else must be
    closed by now. An exception that is on its way out of a ``finally`` block is reported first, since nothing does so
    later, and sets the exit code.
    """
    call = driver_calls.oldest()
    if call is None:
        return
    error = sys.exception()
    if isinstance(error, AliquotError):
        report(error.one_line)
        code = error.exit_code
    elif isinstance(error, Exception):
        import traceback  # slow to import

        frame = traceback.extract_tb(error.__traceback__)[-1]
        report(f"internal fault: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")
        code = 1
    report(f"leaving while {call.sentence}")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
