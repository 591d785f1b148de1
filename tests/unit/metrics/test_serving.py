"""Both servers of pages: what is asked for is what comes, also for strange questions."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from socketserver import StreamRequestHandler

import pytest

from aliquot.errors import BlockedError
from aliquot.foundation.http_probes import Probes
from aliquot.metrics import instruments as make
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.http_server import MetricsServer
from aliquot.metrics.page import MetricsPage
from unit.metrics.looks import many

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


def page() -> MetricsPage:
    return MetricsPage(make.registry(), GpuCollector(lambda: (many(),)), lambda: 1)


def asked(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def _by_threads() -> Iterator[Ask]:
    server = MetricsServer(page(), "127.0.0.1", 0)
    server.start()
    yield lambda method, path, **headers: asked(server.port, method, path, headers)
    server.close()


def _by_loop() -> Iterator[Ask]:
    loop = asyncio.new_event_loop()
    probes = Probes({"/healthz": lambda: (200, "text/plain", b"ok\n")}, {"/metrics": page().answer})
    port = loop.run_until_complete(probes.start("127.0.0.1", 0))

    def ask(method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return loop.run_until_complete(asyncio.to_thread(asked, port, method, path, headers))

    yield ask
    loop.run_until_complete(probes.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(params=[_by_threads, _by_loop], ids=["threads", "loop"])
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    yield from request.param()


def test_the_scraper_chooses(ask: Ask) -> None:
    status, headers, body = ask("GET", "/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert int(headers["Content-Length"]) == len(body)
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "Accept-Encoding": "gzip"}
    status, headers, small = ask("GET", "/metrics?debug=1", **accept)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip"
    assert len(small) < len(body) / 5
    assert gzip.decompress(small).endswith(b"# EOF\n")


def test_other_questions(ask: Ask) -> None:
    assert ask("GET", "/healthz")[::2] == (200, b"ok\n")
    assert ask("GET", "/")[0] == 404
    assert ask("GET", "/../etc/passwd")[0] == 404
    assert ask("HEAD", "/metrics")[::2] == (200, b"")
    assert ask("POST", "/metrics")[0] in (405, 501)
    assert ask("GET", "/metrics", Accept="\xff;;;,,,=")[0] == 200


@contextmanager
def _threads() -> Iterator[int]:
    server = MetricsServer(page(), "127.0.0.1", 0)
    server.start()
    try:
        yield server.port
    finally:
        server.close()


@contextmanager
def _loop() -> Iterator[int]:
    loop = asyncio.new_event_loop()
    worker = threading.Thread(target=loop.run_forever, daemon=True)
    worker.start()
    probes = Probes({"/healthz": lambda: (200, "text/plain", b"ok\n")})
    try:
        yield asyncio.run_coroutine_threadsafe(probes.start("127.0.0.1", 0), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(probes.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        worker.join(30)
        loop.close()


@pytest.mark.parametrize("serving", [pytest.param(_threads, marks=pytest.mark.slow), _loop], ids=["threads", "loop"])
def test_connections_that_say_nothing_take_neither_all_open_files_nor_the_answer(
    serving: Callable[[], AbstractContextManager[int]],
) -> None:
    """A change opens files, too: it must not fail in the middle because a stranger has taken them all."""
    with serving() as port, ExitStack() as stack:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert asked(port, "GET", "/healthz", {})[::2] == (200, b"ok\n")
        assert len(os.listdir("/proc/self/fd")) - before < 300 + 100
        stack.close()
        assert asked(port, "GET", "/healthz", {})[0] == 200


def test_a_body_that_nobody_reads_is_no_second_question() -> None:
    server = MetricsServer(page(), "127.0.0.1", 0)
    server.start()
    second = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as one:
        one.sendall(f"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: {len(second)}\r\n\r\n{second}".encode())
        told = b""
        while more := one.recv(4096):
            told += more
    server.close()
    assert told.count(b"200 OK") == 1


def test_an_answer_is_not_held_back_on_a_connection_that_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body are two writes: the second would wait for the first one's acknowledgement, some 40 ms."""
    told: list[int] = []
    plain = StreamRequestHandler.setup

    def setup(self: StreamRequestHandler) -> None:
        plain(self)
        told.append(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(StreamRequestHandler, "setup", setup)
    server = MetricsServer(page(), "127.0.0.1", 0)
    server.start()
    assert asked(server.port, "GET", "/healthz", {})[0] == 200
    server.close()
    assert told
    assert all(told)


def test_a_port_that_is_taken_is_said() -> None:
    server = MetricsServer(page(), "127.0.0.1", 0)
    server.start()
    with pytest.raises(BlockedError, match="cannot listen on"):
        MetricsServer(page(), "127.0.0.1", server.port)
    server.close()


def test_a_server_that_was_never_started_can_be_closed() -> None:
    """Something failed before: waiting for a thread that is not there would be for ever."""
    server = MetricsServer(page(), "127.0.0.1", 0)
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
