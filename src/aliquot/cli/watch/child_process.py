"""One look at a node for whoever watches it, in a process of its own that ends with the look.

An open NVML session refuses a GPU reset, ours as any other; a driver that is loaded anew cannot be talked to through
the library of the old one; and one that hangs takes its caller with it. So nobody who watches has the driver open: a
child does, for as long as a look takes. While somebody makes a change that needs GPUs for itself, nobody looks at all.
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
    """Why a look failed: an AliquotError on its way between two processes."""

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
    """What a look came to: what is shown, or why not; and the remarks that were made meanwhile."""

    shown: WatchSnapshot | None = None
    failure: WatchFailure | None = None
    notes: tuple[str, ...] = ()


class ObservationProcess:
    """A look under way. ``pipe`` can be read when there is more of its answer."""

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
        """The answer once it is whole, None before. Called when ``pipe`` can be read."""
        more = os.read(self.pipe, 1 << 16)
        self._data += more
        if more:
            return None
        self.close()
        try:
            return msgspec.json.decode(self._data, type=WatchAnswer)
        except msgspec.MsgspecError:
            return WatchAnswer(failure=WatchFailure("INTERNAL", 1, "the look ended without an answer"))

    def kill(self) -> None:
        """End a look that takes too long. One that hangs in the kernel goes on until that lets it go."""
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of the pipe, and of the child: it has said everything, or was told to end."""
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


def _child(read: SnapshotReader, args: Args, pipe: int, mask: set[int]) -> None:
    """Looks, answers, ends. Never returns: nothing of the parent's is closed or flushed twice."""
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
    except Exception as exception:  # noqa: BLE001  (as at the face itself: a watcher outlives a look)
        failure = WatchFailure("INTERNAL", 1, f"{type(exception).__name__}: {' '.join(str(exception).split())[:300]}")
    return WatchAnswer(snapshot, failure, tuple(dict.fromkeys(stderr.getvalue().splitlines())))
