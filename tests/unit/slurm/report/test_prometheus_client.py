"""Limits of queries to a Prometheus. A real one answers in ``tests/system/prometheus``."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from aliquot.errors import UsageError
from aliquot.slurm.report import prometheus
from aliquot.slurm.report.prometheus import NoMeasurementsError, Prometheus, read_token

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


def guarded(connection: socket.socket, over: Event) -> None:
    """Answer only the request with the right token."""
    request = b""
    while not request.endswith(b"timeout=1s"):
        request += connection.recv(65536)
    right = b"\r\nAuthorization: Bearer right\r\n" in request
    body = b'{"status": "success", "data": {"resultType": "vector", "result": []}}' if right else b""
    status = b"200 OK" if right else b"401 Unauthorized"
    connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))


def test_a_prometheus_that_wants_a_token_gets_the_one_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("right\n")
    with serving(guarded) as url:
        assert Prometheus(url, bound_s=1.0, token=read_token(str(path))).ask("up", 0) == []
    with serving(guarded) as url, pytest.raises(NoMeasurementsError, match=r"401.*--prometheus-token-file FILE"):
        Prometheus(url, bound_s=1.0).ask("up", 0)


@pytest.mark.parametrize("text", ["", "two words", "secret\nX-Header: other", "sécret"])
def test_a_file_without_a_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(UsageError, match="does not have a token") as refused:
        read_token(str(path))
    assert not text or text not in str(refused.value)
    with pytest.raises(UsageError, match="cannot read the token file"):
        read_token(str(tmp_path / "absent"))
