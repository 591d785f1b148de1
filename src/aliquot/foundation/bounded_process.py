"""Run a program to its end, with limits on time and output. Its process group is killed if it does not end in time.

Every program that Aliquot runs and waits for runs here; ``start`` starts one that outlives this process. Import this
module only where a program is run, so that commands that run none do not pay for the import.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Literal, NamedTuple

MAX_OUTPUT_BYTES = 8 << 20
"""Limit for each of stdout and stderr, unless the caller sets another."""
_CHUNK_BYTES = 1 << 16
_QUIET_S = 1.0
"""Seconds for which other processes may keep the output of an ended program open before reading stops."""
KILLED_S = 5.0
"""Seconds to wait for a program after SIGKILL, because it may hang inside the kernel."""

OutputMode = Literal["separate", "merged", "shown"]
"""Where a program's output goes: to ``out`` and ``err``, both to ``out``, or to this process's stderr."""


class ProcessResult(NamedTuple):
    """The result of a program."""

    code: int
    """The exit status, or the negative number of the signal that ended the program."""
    out: str
    err: str


class ProcessTimeoutError(TimeoutError):
    """A program did not end in time and was killed."""

    def __init__(self, seconds: float, err: str = "") -> None:
        super().__init__(f"no answer in {seconds:.0f} s")
        self.err = err
        """What the program wrote to stderr."""


class SlowCheck(NamedTuple):
    """A callback for a program that has not ended after ``seconds``.

    It is called once with what the program wrote to stderr. An exception that it raises ends the program and
    propagates.
    """

    seconds: float
    callback: Callable[[str], None]


def run(
    words: Sequence[str],
    seconds: float,
    text: str = "",
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    output: OutputMode = "separate",
    most: int | None = None,
    check: SlowCheck | None = None,
    stop: threading.Event | None = None,
) -> ProcessResult:
    """Run a program to its end, with ``text`` on its stdin, in its own session: Ctrl-C reaches this process only.

    ``most`` limits the output in bytes (default: ``MAX_OUTPUT_BYTES``). Setting ``stop`` ends the program.

    Raises ProcessTimeoutError (a TimeoutError) after ``seconds``. Raises OSError if the program cannot be started,
    writes more than the limit, or is stopped. Then, or if another exception arrives, the program and what it started in
    its session are killed. A process that keeps the streams open after the program has ended is not waited for.
    """
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        words,
        stdin=pipe if text else subprocess.DEVNULL,
        stdout=2 if output == "shown" else pipe,
        stderr={"separate": pipe, "merged": subprocess.STDOUT, "shown": 2}[output],
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    exchange = _Exchange(started, MAX_OUTPUT_BYTES if most is None else most, seconds, check, stop)
    try:
        exchange.run(text)
        return ProcessResult(started.returncode, _text(exchange.out), _text(exchange.err))
    finally:
        _end(started)


def run_starter(words: Sequence[str], seconds: float, *, env: Mapping[str, str] | None = None) -> ProcessResult:
    """Run a program that starts a daemon.

    The output goes to memory instead of pipes, because the daemon may keep it open and write to it forever. ``out`` is
    the last part of it, including stderr. What the program leaves running keeps running; so does the program itself if
    this process is interrupted. Raises ProcessTimeoutError, with the output, after killing a program that takes longer
    than ``seconds``. Raises OSError if it cannot be started.
    """
    with os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC), "rb") as output:
        descriptor = output.fileno()
        started = _begin(words, descriptor, env, None)
        try:
            code = started.wait(seconds)
        except subprocess.TimeoutExpired as late:
            _end(started)
            raise ProcessTimeoutError(seconds, _last(descriptor)) from late
        return ProcessResult(code, _last(descriptor), "")


def start(
    words: Sequence[str],
    output: int,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    inherited: Sequence[int] = (),
) -> int:
    """Start a program that outlives this process, in its own session and without stdin, and return its pid. Both output
    streams go to the descriptor ``output``. The program inherits the descriptors ``inherited``. Raises OSError.
    """
    started = _begin(words, output, env, cwd, inherited)
    started.returncode = 0  # this process does not wait for it
    return started.pid


def _begin(
    words: Sequence[str], output: int, env: Mapping[str, str] | None, cwd: str | None, inherited: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=env,
        cwd=cwd,
        start_new_session=True,
        pass_fds=inherited,
    )


class _Exchange:
    """The input and output of one program until it ends."""

    def __init__(
        self,
        started: subprocess.Popen[bytes],
        most: int,
        seconds: float,
        check: SlowCheck | None,
        stop: threading.Event | None,
    ) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._started = started
        self._most = most
        self._seconds = seconds
        self._check = check
        self._stop = stop

    def run(self, text: str) -> None:
        with selectors.DefaultSelector() as ready:
            for stream, event, data in (
                (self._started.stdin, selectors.EVENT_WRITE, memoryview(text.encode())),
                (self._started.stdout, selectors.EVENT_READ, self.out),
                (self._started.stderr, selectors.EVENT_READ, self.err),
            ):
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    ready.register(stream, event, data)
            self._run_to_end(ready)

    def _run_to_end(self, ready: selectors.BaseSelector) -> None:
        begun, ended = time.monotonic(), 0.0
        while ready.get_map() or self._started.poll() is None:
            now = time.monotonic()
            if self._started.poll() is not None:
                ended = ended or now
                if now - ended > _QUIET_S:
                    return
            self._check_limits(now - begun)
            if not ready.get_map():
                time.sleep(0.01)
            for key, _ in ready.select(min(0.1, max(0.0, begun + self._seconds - now))):
                if key.events & selectors.EVENT_WRITE:
                    _write(ready, key)
                else:
                    self._read(ready, key)

    def _check_limits(self, elapsed: float) -> None:
        """Raise if the program must not continue."""
        if elapsed > self._seconds:
            raise ProcessTimeoutError(self._seconds, _text(self.err))
        if self._stop is not None and self._stop.is_set():
            raise InterruptedError(None, "it was stopped")
        if self._check is not None and elapsed > self._check.seconds:
            check, self._check = self._check, None
            check.callback(_text(self.err))

    def _read(self, ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        chunk = os.read(key.fd, _CHUNK_BYTES)
        if not chunk:
            ready.unregister(key.fileobj)
            return
        key.data.extend(chunk)
        if len(key.data) > self._most:
            raise OSError(None, f"it writes more than {self._most >> 20} MiB")


def _write(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    left: memoryview = key.data
    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
    with contextlib.suppress(BrokenPipeError):  # it closed its stdin: its exit status says why
        left = left[os.write(stream.fileno(), left[:_CHUNK_BYTES]) :] if left else left
        if left:
            ready.modify(stream, selectors.EVENT_WRITE, left)
            return
    ready.unregister(stream)
    stream.close()


def _text(data: bytearray) -> str:
    return bytes(data).decode(errors="replace")


def _last(output: int) -> str:
    size = os.fstat(output).st_size
    return os.pread(output, 4000, max(0, size - 4000)).decode(errors="replace")


def _end(started: subprocess.Popen[bytes]) -> None:
    if started.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(KILLED_S)
    for stream in (started.stdin, started.stdout, started.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
