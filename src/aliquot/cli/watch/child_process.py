"""A child process that takes one sample of a node for ``--watch``, and ends with the sample.

The watching process itself never opens the driver, for three reasons. An open NVML session blocks a GPU reset, also
one by Aliquot. The library of an old driver cannot talk to a driver that is loaded again. A driver that hangs also
hangs its caller. While a change needs the GPUs exclusively, no sample is taken at all.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from aliquot.cli.framework.parser import Args
from aliquot.cli.watch.snapshot import WatchSnapshot
from aliquot.errors import AliquotError
from aliquot.foundation import signals

SnapshotReader = Callable[[Args], WatchSnapshot]


class WatchFailure(msgspec.Struct, frozen=True):
    """The error of a failed sample: an AliquotError in the form that the pipe between two processes carries."""

    code: str
    exit_code: int
    brief: str
    details: tuple[str, ...] = ()
    next_step: str | None = None

    @property
    def error(self) -> AliquotError:
        made = AliquotError(self.brief, details=self.details, next_step=self.next_step)
        made.code, made.exit_code = self.code, self.exit_code
        return made


class WatchAnswer(msgspec.Struct, frozen=True):
    """The result of a sample: a snapshot or a failure, and the lines that the child wrote to stderr."""

    shown: WatchSnapshot | None = None
    failure: WatchFailure | None = None
    notes: tuple[str, ...] = ()


class ObservationProcess:
    """A running sample. ``pipe`` is readable when more of its answer is there."""

    def __init__(self, read: SnapshotReader, args: Args) -> None:
        self.pipe, write_end = os.pipe()
        self._data = b""
        try:
            with signals.blocked() as previous_mask:
                self.pid = os.fork()
                if not self.pid:
                    os.close(self.pipe)
                    _child(read, args, write_end, previous_mask)
        except BaseException:
            os.close(self.pipe)
            raise
        finally:
            os.close(write_end)

    def answer(self) -> WatchAnswer | None:
        """Return the answer if it is complete, else None. Called when ``pipe`` is readable."""
        more = os.read(self.pipe, 1 << 16)
        self._data += more
        if more:
            return None
        self.close()
        try:
            return msgspec.json.decode(self._data, type=WatchAnswer)
        except msgspec.MsgspecError:
            return WatchAnswer(failure=WatchFailure("INTERNAL", 1, "the sampling process ended without an answer"))

    def kill(self) -> None:
        """Kill a sample that takes too long. One that hangs in the kernel ends only when the kernel call returns."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipe and wait for the child, which has answered or was killed."""
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


def _child(read: SnapshotReader, args: Args, pipe: int, mask: set[int]) -> None:
    """Take a sample, write the answer and exit. Never returns, so that no file of the parent is flushed twice."""
    try:
        signals.in_child(mask, signal.SIGTSTP, signal.SIGWINCH)
        data = msgspec.json.encode(_observe(read, args))
        while data:
            data = data[os.write(pipe, data) :]
    finally:
        os._exit(0)


def _observe(read: SnapshotReader, args: Args) -> WatchAnswer:
    stderr = sys.stderr = io.StringIO()
    snapshot, failure = None, None
    try:
        snapshot = read(args)
    except AliquotError as error:
        failure = WatchFailure(error.code, error.exit_code, error.brief, error.details, error.next_step)
    except Exception as exception:  # noqa: BLE001  (as in the main program: a failed sample does not end the watch)
        failure = WatchFailure("INTERNAL", 1, f"{type(exception).__name__}: {' '.join(str(exception).split())[:300]}")
    return WatchAnswer(snapshot, failure, tuple(dict.fromkeys(stderr.getvalue().splitlines())))
