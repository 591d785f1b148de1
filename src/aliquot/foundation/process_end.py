"""How a process ends although a driver call does not return.

Python waits at its exit for every worker thread, and asyncio for those of its executor: a thread that waits inside the
driver would keep the process until something kills it, and a thread that waits inside the kernel beyond that.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from aliquot.foundation import driver_calls


def leave_if_hung(code: int, report: Callable[[str], object]) -> None:
    """End the process at once if a driver call has not returned, and ``report`` the call. Everything else must be
    closed by now.
    """
    call = driver_calls.oldest()
    if call is None:
        return
    report(f"leaving while {call.sentence}")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
