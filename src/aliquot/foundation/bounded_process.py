"""Programs whose words another machine writes: bounded in time, and in how much they may say."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

MOST = 8 << 20
"""Bytes on each of stdout and stderr. What a node says of itself is some hundred kilobytes."""
_PIECE = 1 << 16
_QUIET_S = 1.0


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(words: Sequence[str], text: str, seconds: float, env: Mapping[str, str] | None = None) -> Ran:
    """A program to its end, ``text`` on its stdin, in a session of its own: it outlives Ctrl-C here.

    Raises TimeoutError after ``seconds``, OSError where it cannot be started or says more than ``MOST``; it and what it
    started in its session are killed then. What keeps its streams open after its own end is not waited for.
    """
    pipe = subprocess.PIPE
    started = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
    assert started.stdin is not None
    assert started.stdout is not None
    assert started.stderr is not None
    said: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
    try:
        with selectors.DefaultSelector() as ready:
            _watch(ready, started.stdin, selectors.EVENT_WRITE, memoryview(text.encode()))
            _watch(ready, started.stdout, selectors.EVENT_READ, said["out"])
            _watch(ready, started.stderr, selectors.EVENT_READ, said["err"])
            _talk(ready, started, time.monotonic() + seconds, seconds)
        return Ran(started.returncode, *(bytes(each).decode(errors="replace") for each in said.values()))
    finally:
        _end(started)


def _watch(ready: selectors.BaseSelector, stream: IO[bytes], event: int, data: object) -> None:
    os.set_blocking(stream.fileno(), False)
    ready.register(stream, event, data)


def _talk(ready: selectors.BaseSelector, started: subprocess.Popen[bytes], deadline: float, seconds: float) -> None:
    ended = 0.0
    while ready.get_map() or started.poll() is None:
        now = time.monotonic()
        if started.poll() is not None:
            ended = ended or now
            if now - ended > _QUIET_S:
                return
        if now > deadline:
            raise TimeoutError(f"no answer in {seconds:.0f} s")
        if not ready.get_map():
            time.sleep(0.01)
        for key, _ in ready.select(min(0.1, max(0.0, deadline - now))):
            if key.events & selectors.EVENT_WRITE:
                _write(ready, key)
            else:
                _read(ready, key)


def _write(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    left: memoryview = key.data
    stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
    with contextlib.suppress(BrokenPipeError):  # it does not listen: its end says why
        left = left[os.write(stream.fileno(), left[:_PIECE]) :] if left else left
        if left:
            ready.modify(stream, selectors.EVENT_WRITE, left)
            return
    ready.unregister(stream)
    stream.close()


def _read(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    piece = os.read(key.fd, _PIECE)
    if not piece:
        ready.unregister(key.fileobj)
        return
    key.data.extend(piece)
    if len(key.data) > MOST:
        raise OSError(None, f"it says more than {MOST >> 20} MiB")


def _end(started: subprocess.Popen[bytes]) -> None:
    if started.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    for stream in (started.stdin, started.stdout, started.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
