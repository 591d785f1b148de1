"""Limits of queries to a Prometheus. A real one answers in ``tests/system/prometheus``."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from aliquot.slurm.report import prometheus
from aliquot.slurm.report.prometheus import NoMeasurementsError, Prometheus

Serve = Callable[[socket.socket, Event], None]


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """Run ``serve`` with the first connection. Yield the URL."""
    over = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            connection, _ = server.accept()
            with connection:
                serve(connection, over)

        thread = Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def silent(connection: socket.socket, over: Event) -> None:
    over.wait(10)


def slow(connection: socket.socket, over: Event) -> None:
    """Send a byte ten times a second, so that no single read waits for long."""
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.wait(0.1):
            connection.sendall(b" ")
    except OSError:
        return


def endless(connection: socket.socket, over: Event) -> None:
    try:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.is_set():
            connection.sendall(b" " * 65536)
    except OSError:
        return


@pytest.mark.parametrize("serve", [silent, slow])
def test_a_query_ends_in_time(serve: Serve) -> None:
    with serving(serve) as url:
        begun = time.monotonic()
        asked = Prometheus(url, bound_s=0.5)
        with pytest.raises(NoMeasurementsError):
            asked.ask("up", 0)
        assert time.monotonic() - begun < 5
        time.sleep(max(0.0, begun + 0.5 - time.monotonic()))
        with pytest.raises(NoMeasurementsError, match="use a shorter --since"):
            asked.ask("up", 0)


def test_an_answer_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 1 << 20)
    with serving(endless) as url, pytest.raises(NoMeasurementsError, match="longer than 1048576 bytes"):
        Prometheus(url, bound_s=20.0).ask("up", 0)
