"""A process that ends although a driver call does not return: its exit code and its last messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDING = """
import asyncio, sys, threading, time
from aliquot.errors import BlockedError
from aliquot.foundation.driver_calls import DriverCall
from aliquot.foundation.process_end import leave_if_hung

def hang():
    with DriverCall("reading the GPUs"):
        begun.set()
        time.sleep(60)

async def serve():
    try:
        {act}
    finally:
        await asyncio.sleep(0)  # whatever is closed
        leave_if_hung(7, lambda line: print(line, file=sys.stderr))
    return 0

begun = threading.Event()
if {hangs}:
    threading.Thread(target=hang).start()
    begun.wait()
raise SystemExit(asyncio.run(serve()))
"""


def ended(act: str, *, hangs: bool = True) -> tuple[int, str]:
    """Run a process that does this and ends. Return its exit code and stderr."""
    command = [sys.executable, "-c", ENDING.format(act=act, hangs=hangs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stderr


def test_it_leaves_with_its_code_and_names_the_call() -> None:
    code, answer = ended("pass")
    assert code == 7
    assert answer.startswith("exiting while the driver has not returned from reading the GPUs for ")
    assert len(answer.splitlines()) == 1


@pytest.mark.parametrize(
    ("act", "code", "line"),
    [
        ("raise RuntimeError('oops')", 1, "internal error: RuntimeError: oops (<string>:14)"),
        ("raise BlockedError('the port is taken', next_step='take another')", 20, "the port is taken"),
    ],
)
def test_an_error_on_the_way_is_reported_and_sets_the_code(act: str, code: int, line: str) -> None:
    left, answer = ended(act)
    assert left == code
    first, second = answer.splitlines()
    assert first.startswith(line)
    assert second.startswith("exiting while")
    assert "Traceback" not in answer


def test_nothing_is_left_where_no_call_hangs() -> None:
    assert ended("pass", hangs=False) == (0, "")
