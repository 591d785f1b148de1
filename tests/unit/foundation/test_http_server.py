"""The HTTP server in a thread and on an event loop: each request gets its own response."""

from __future__ import annotations

import asyncio
import errno
import gzip
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from aliquot.errors import BlockedError
from aliquot.foundation import http_server
from aliquot.foundation.http_server import Answer, HttpServer, listen, text_answer
from aliquot.metrics import instruments as make
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.page import MetricsPage
from unit.metrics.snapshots import many

LARGE = b"x" * 8_000_000


def made(host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    def broken(_: object) -> Answer:
        raise ValueError("broken")

    pages = MetricsPage(make.registry(), GpuCollector(lambda: (many(),)), lambda: 1).pages()
    extra = {
        "/broken": broken,
        "/large": lambda _: Answer(200, "text/plain", LARGE),
        "/rare": lambda _: text_answer(418, "tea"),
    }
    return HttpServer({**pages, **extra}, host, port, "aliquot metrics")


def asked(
    port: int, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def messages(port: int, request: str) -> bytes:
    """Return everything that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
        one.sendall(request.encode())
        return b"".join(iter(lambda: one.recv(65536), b""))


def _in_thread() -> Iterator[int]:
    server = made()
    server.start()
    yield server.port
    server.close()


def _on_loop() -> Iterator[int]:
    loop = asyncio.new_event_loop()
    worker = threading.Thread(target=loop.run_forever, daemon=True)
    worker.start()
    server = made()
    loop.call_soon_threadsafe(server.attach, loop)
    yield server.port
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    worker.join(30)
    loop.close()


@pytest.fixture(params=[_in_thread, _on_loop], ids=["thread", "loop"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    yield from request.param()


def test_the_scraper_chooses(port: int) -> None:
    status, headers, body = asked(port, "GET", "/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert int(headers["Content-Length"]) == len(body)
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "Accept-Encoding": "gzip"}
    status, headers, small = asked(port, "GET", "/metrics?debug=1", accept)
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert headers["Content-Encoding"] == "gzip"
    assert len(small) < len(body) / 5
    assert gzip.decompress(small).endswith(b"# EOF\n")


def test_other_questions(port: int) -> None:
    assert asked(port, "GET", "/healthz")[::2] == (200, b"ok\n")
    assert asked(port, "GET", "/")[::2] == (404, b"/metrics /healthz /broken /large /rare\n")
    assert asked(port, "GET", "/../etc/passwd")[0] == 404
    status, headers, body = asked(port, "HEAD", "/healthz")
    assert (status, headers["Content-Length"], body) == (200, "3", b"")
    assert asked(port, "POST", "/metrics")[0] == 405
    assert asked(port, "GET", "/metrics", {"Accept": "\xff;;;,,,="})[0] == 200
    assert messages(port, "\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    assert asked(port, "GET", "/rare")[0] == 418


def test_a_page_that_fails_is_an_answer_and_not_the_end(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert asked(port, "GET", "/broken")[0] == 500
    assert "the page /broken failed" in caplog.text
    assert asked(port, "GET", "/healthz")[0] == 200


def test_a_large_answer_arrives_as_a_whole_while_others_are_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
        slow.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        assert asked(port, "GET", "/healthz")[0] == 200
        answer = b"".join(iter(lambda: slow.recv(65536), b""))
    assert answer.endswith(b"\r\n\r\n" + LARGE)


def test_a_connection_is_kept_for_the_next_request(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        assert connection.sock is not None, "the server closed the connection"
    connection.close()


def test_requests_that_do_not_wait_for_answers_do_not_keep_others_from_theirs(port: int) -> None:
    # The agents' loop answers: a thousand requests in one packet from any client must not delay a lease or a watch.
    answers = messages(port, "GET /metrics HTTP/1.1\r\n\r\n" * 1000)
    assert answers.count(b" 200 OK\r\n") == answers.count(b"Connection: close\r\n") == 1


def test_connections_that_say_nothing_take_neither_all_open_files_nor_the_answer(port: int) -> None:
    # A change opens files, too: it must not fail in the middle because a client has used up all descriptors.
    with ExitStack() as stack:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        assert asked(port, "GET", "/healthz")[::2] == (200, b"ok\n")
        assert len(os.listdir("/proc/self/fd")) - before < 300 + 100
        stack.close()
        assert asked(port, "GET", "/healthz")[0] == 200


def test_a_request_that_does_not_arrive_in_time_or_has_no_end_is_dropped(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert messages(port, "x" * http_server._MAX_HEAD_BYTES) == b""
    monkeypatch.setattr(http_server, "_PATIENCE_S", 0.2)
    assert messages(port, "GET /healthz HTTP/1.1\r\n") == b""
    assert messages(port, "GET /healthz HTTP/1.1\r\n\r\n").endswith(b"ok\n"), "idle too long after an answer"


def test_an_unread_body_is_not_a_second_request(port: int) -> None:
    second = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    reported = messages(port, f"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: {len(second)}\r\n\r\n{second}")
    assert reported.count(b"200 OK") == 1


@pytest.mark.parametrize("lacking", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_open_files_or_memory_the_server_waits_and_goes_on(
    lacking: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server must not poll in a tight loop meanwhile.
    tried: list[float] = []
    accept = socket.socket.accept

    def refuse(self: socket.socket) -> tuple[socket.socket, object]:
        tried.append(time.monotonic())
        if len(tried) < 3:
            raise OSError(lacking, os.strerror(lacking))
        return accept(self)

    monkeypatch.setattr(http_server, "_PAUSE_S", 0.1)
    monkeypatch.setattr(socket.socket, "accept", refuse)
    for serving in (_in_thread(), _on_loop()):
        tried.clear()
        assert asked(next(serving), "GET", "/healthz")[0] == 200
        assert tried[2] - tried[0] >= 0.2
        next(serving, None)


def test_an_answer_is_not_held_back_on_a_connection_that_stays_open() -> None:
    # Otherwise the end of an answer would wait some 40 ms for the acknowledgement of the previous packet.
    with listen("", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_is_taken_is_reported() -> None:
    server = made()
    with pytest.raises(BlockedError) as error:
        made(port=server.port)
    assert error.value.brief == f"cannot listen on 127.0.0.1 port {server.port}: Address already in use"
    assert error.value.next_step == "aliquot metrics"
    server.close()
    with pytest.raises(BlockedError, match="cannot listen on port 70000"):
        made("", 70000)


def test_all_addresses_are_those_of_both_families() -> None:
    server = made("", 0)
    assert server.display_address == f"127.0.0.1:{server.port}", "a free port is one of loopback"
    server.close()
    with listen("", 0) as free:
        number = free.getsockname()[1]
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    server = HttpServer({"/": lambda _: text_answer(200, "ok")}, "", number, "")
    assert server.display_address == f"[::]:{number}"
    server.start()
    for address in ("127.0.0.1", "::1"):
        with socket.create_connection((address, number), timeout=10) as one:
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    server.close()


def test_a_machine_without_both_families_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listen("", 0) as free:
        number = free.getsockname()[1]
    with listen("", number) as listener:
        assert listener.getsockname() == ("0.0.0.0", number)


@pytest.mark.parametrize("refusal", [errno.EADDRNOTAVAIL, errno.EADDRINUSE])
def test_a_machine_whose_second_family_has_no_addresses_is_served(
    refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A port that another program uses in that family is not shared with it.
    bind = socket.socket.bind

    def refuse(self: socket.socket, address: tuple[str, int]) -> None:
        if address[0] == "::":
            raise OSError(refusal, os.strerror(refusal))
        bind(self, address)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: True)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    with listen("", 0) as free:
        number = free.getsockname()[1]
    if refusal == errno.EADDRINUSE:
        with pytest.raises(OSError, match="Address already in use"):
            listen("", number)
        return
    with listen("", number) as listener:
        assert listener.getsockname() == ("0.0.0.0", number)


def test_a_server_that_was_never_started_can_be_closed() -> None:
    # An earlier step failed: a wait for the thread that never started would not end.
    server = made()
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
