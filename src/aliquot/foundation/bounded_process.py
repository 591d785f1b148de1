"""Run a program to its end: bounded in time and in output, with its process group killed where it does not end.

Every program that Aliquot runs, and waits for, runs here; ``start`` begins one that outlives this process. Modules that
run programs import this one when they do so: a command that runs none does not pay for it.
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
from typing import IO, NamedTuple

MAX_OUTPUT_BYTES = 8 << 20
"""Bytes on each of stdout and stderr, unless a caller expects more."""
_CHUNK_BYTES = 1 << 16
_QUIET_S = 1.0
"""How long a program that has ended may leave its output open to others before it is taken as read."""
KILLED_S = 5.0
"""How long a program is waited for after SIGKILL: inside the kernel it may hang on."""


class ProcessResult(NamedTuple):
    """How a program ended: its status (minus the signal that ended it) and its output."""

    code: int
    out: str
    err: str


class ProcessTimeoutError(TimeoutError):
    """A program did not end in time and was killed. ``err`` is what it wrote to stderr."""

    def __init__(self, seconds: float, err: str = "") -> None:
        super().__init__(f"no answer in {seconds:.0f} s")
        self.err = err


class SlowCheck(NamedTuple):
    """Call ``callback`` once with what the program wrote to stderr, where it has not ended after ``seconds``. An
    exception that it raises ends the program and is passed on.
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
    merged: bool = False,
    shown: bool = False,
    most: int | None = None,
    check: SlowCheck | None = None,
    stop: threading.Event | None = None,
) -> ProcessResult:
    """Run a program to its end, with ``text`` on its stdin, in a session of its own: Ctrl-C reaches this process only.

    ``merged`` has its stderr in ``out``; ``shown`` lets it write to this process's stderr instead. ``most`` bytes of
    output are kept, ``MAX_OUTPUT_BYTES`` by default. ``stop`` ends it when set.

    Raises LateError (a TimeoutError) after ``seconds``, OSError where it cannot be started, writes more, or is stopped.
    Then, and where an exception comes from outside, it and what it started in its session are killed. What keeps its
    streams open after its own end is not waited for.
    """
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        words,
        stdin=pipe if text else subprocess.DEVNULL,
        stdout=2 if shown else pipe,
        stderr=2 if shown else subprocess.STDOUT if merged else pipe,
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
    """Run a program that starts a daemon. Its output goes to memory instead of pipes, which the daemon may keep open
    and write to for ever; ``out`` is the last of it, stderr included.

    What it leaves running keeps running, and so does the program where this process is interrupted. Raises LateError
    after ``seconds``, with what it wrote, when it was killed; OSError where it cannot be started.
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
    """Start a program that outlives this process, in a session of its own, without stdin; both its streams go to the
    descriptor ``output``, and it inherits further descriptors. Returns its pid. Raises OSError.
    """
    started = _begin(words, output, env, cwd, inherited)
    started.returncode = 0  # it outlives this process, which does not wait for it
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
    """Write to and read from one program until it has ended."""

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
        """Raise where the program may go on no longer."""
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
            raise OSError(None, f"it says more than {self._most >> 20} MiB")


def _write(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    left: memoryview = key.data
    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
    with contextlib.suppress(BrokenPipeError):  # it does not listen: its end says why
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
