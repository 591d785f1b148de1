"""The end of a process while a driver call does not return.

At exit, Python waits for every worker thread, and asyncio for those of its executor. A thread that waits inside the
driver would keep the process until a signal kills it, or longer if it waits inside the kernel.
"""

from __future__ import annotations

import logging
import os
import sys

from aliquot.errors import AliquotError
from aliquot.foundation import driver_calls
from aliquot.foundation.callbacks import Report


def leave_if_hung(code: int, report: Report) -> None:
    """End the process at once if a driver call has not returned, and ``report`` the call.

    Close everything else first. If an exception is propagating out of a ``finally`` block, it is reported, because
    nothing else would report it later, and it sets the exit code.
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
        report(f"internal error: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})")
        code = 1
    report(f"exiting while {call.sentence}")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
