"""Liveness, readiness and metrics over HTTP: a few pages, for processes with an event loop and without one.

One epoll set holds all connections. A thread drives it, or an event loop that watches the set itself.
Measured on a scraped ``aliquot metrics``: PSS 21.0 MiB and 0.45 ms a scrape; the threads of http.server took 21.5 MiB
and 0.7 ms. An event loop there would have to import asyncio: 170 ms and 6 MiB more.
"""

from __future__ import annotations

import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class Answer(NamedTuple):
    """``headers`` are further ones, beside the content type."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


Page = Callable[[Mapping[str, str]], Answer]
"""Answers by the request's headers, whose names are in small letters; behind the webhooks' server by its query."""

_REASONS = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_PATIENCE_S = 10.0
"""How long a request may take to arrive, and its answer to be taken."""
_MAX_CONNECTIONS = 64
"""Connections at a time: strangers must not take the open files that a change needs. The oldest gives way, so that a
client that asks at once is answered.
"""
_MAX_HEAD_BYTES = 65536
_END = b"\r\n\r\n"
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 1.0
"""How long the server accepts no connection after it ran out of open files or memory."""


def text_answer(status: int, text: str) -> Answer:
    """Return a line of plain text as an answer."""
    return Answer(status, "text/plain", f"{text}\n".encode())


def answer_ok(_: Mapping[str, str]) -> Answer:
    """Answer that the process is there."""
    return text_answer(200, "ok")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Without a host these are all addresses of both families, but
    loopback for port 0, which takes a free one. Raises OSError, OverflowError.
    """
    if not host and port and socket.has_dualstack_ipv6():
        try:
            return listen("::", port)
        except OSError as error:  # a kernel with IPv6 and without addresses of it serves IPv4 only
            if error.errno == errno.EADDRINUSE:
                raise
    host = host or ("0.0.0.0" if port else "127.0.0.1")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by what is accepted. The end of an answer would else be 40 ms late on a connection that is kept.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


class HttpServer:
    """Serves pages by path. ``port`` is the one that is listened on."""

    def __init__(self, pages: Mapping[str, Page], host: str, port: int, next_step: str) -> None:
        """Listen; ``start`` or ``attach`` begins to answer. Raises BlockedError where it cannot be listened on."""
        try:
            self._listener = listen(host, port)
        except (OSError, OverflowError) as error:
            where = f"{host} port {port}" if host else f"port {port}"
            why = getattr(error, "strerror", None) or error
            raise BlockedError(f"cannot listen on {where}: {why}", next_step=next_step) from error
        self._listener.setblocking(False)
        self._address, self.port = self._listener.getsockname()[:2]
        self._pages = pages
        self._open: dict[socket.socket, _Connection] = {}
        self._selector = selectors.EpollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._resume_at: float | None = None
        self._closing = False
        self._stop: Callable[[], None] = lambda: None

    @property
    def display_address(self) -> str:
        """``127.0.0.1:9837``, as in an address of the web."""
        return f"[{self._address}]:{self.port}" if ":" in self._address else f"{self._address}:{self.port}"

    def start(self) -> None:
        """Answer in a thread of its own, until ``close``."""

        def run() -> None:
            wait = None
            while not self._closing:
                wait = self._serve(wait)

        def stop() -> None:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
            thread.join()

        thread = threading.Thread(target=run, name="pages", daemon=True)
        self._stop = stop
        thread.start()

    def attach(self, loop: AbstractEventLoop) -> None:
        """Answer on an event loop, until ``close``."""
        timer: TimerHandle | None = None

        def run() -> None:
            stop_timer()
            nonlocal timer
            wait = self._serve(0)
            timer = None if wait is None else loop.call_later(wait, run)

        def stop_timer() -> None:
            if timer is not None:
                timer.cancel()

        def stop() -> None:
            loop.remove_reader(self._selector)
            stop_timer()

        self._stop = stop
        loop.add_reader(self._selector, run)

    def close(self) -> None:
        """End it all, also where it never began."""
        self._closing = True
        self._stop()
        for client in tuple(self._open):
            self._drop(client)
        self._selector.close()
        self._listener.close()

    def _serve(self, wait: float | None) -> float | None:
        """Do what can be done within that time. Return after how long something is late, None for never."""
        for key, _ in self._selector.select(wait):
            if key.data is None:
                self._accept()
            elif not key.data.proceed():
                self._drop(key.data.client)
            elif key.events != key.data.events:
                self._selector.modify(key.fileobj, key.data.events, key.data)
        now = time.monotonic()
        for connection in tuple(self._open.values()):
            if connection.deadline <= now:
                self._drop(connection.client)
        due = [connection.deadline for connection in self._open.values()]
        if self._resume_at is not None:
            if self._resume_at <= now:
                self._resume_at = None
                self._selector.register(self._listener, selectors.EVENT_READ)
            else:
                due.append(self._resume_at)
        return min(due) - now if due else None

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # to be told again and again would take a whole processor
                self._selector.unregister(self._listener)
                self._resume_at = time.monotonic() + _PAUSE_S
            return
        client.setblocking(False)
        self._open[client] = connection = _Connection(client, self._answer)
        self._selector.register(client, selectors.EVENT_READ, connection)
        if len(self._open) > _MAX_CONNECTIONS:
            self._drop(next(iter(self._open)))

    def _drop(self, client: socket.socket) -> None:
        if self._open.pop(client, None) is not None:
            self._selector.unregister(client)
            client.close()

    def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        if method not in ("GET", "HEAD"):
            return text_answer(405, "GET only")
        if path not in self._pages:
            return text_answer(404, " ".join(self._pages))
        try:
            return self._pages[path](headers)
        except Exception:
            import logging

            logging.getLogger(__name__).exception("the page %s failed", path)
            return text_answer(500, "failed")


class _Connection:
    """One client: its request as far as it came, then the answer as far as it is not taken."""

    def __init__(self, client: socket.socket, answer: Callable[[str, str, Mapping[str, str]], Answer]) -> None:
        self.client = client
        self.deadline = time.monotonic() + _PATIENCE_S
        self._answer = answer
        self._received = self._unsent = b""
        self._kept = True

    @property
    def events(self) -> int:
        """What it waits for."""
        return selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ

    def proceed(self) -> bool:
        """Read, answer and send what can be now. Return whether the connection goes on."""
        try:
            if not self._unsent:
                more = self.client.recv(_MAX_HEAD_BYTES)
                if not more:
                    return False
                self._received += more
                self._read_request()
            while self._unsent:
                self._unsent = self._unsent[self.client.send(self._unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return self._kept and len(self._received) < _MAX_HEAD_BYTES

    def _read_request(self) -> None:
        """Answer the next request, if it is there as a whole."""
        head, end, self._received = self._received.partition(_END)
        if not end:
            self._received = head
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        target, _, version = rest.partition(" ")
        headers = _headers(lines)
        # The server does not answer what follows. It would take a body for the next request, and a client that
        # pipelines requests would keep this thread, or the event loop, for itself.
        more_follows = self._received or "content-length" in headers or "transfer-encoding" in headers
        self._kept = version == "HTTP/1.1" and not more_follows and headers.get("connection", "").lower() != "close"
        answer = self._answer(method, target.partition("?")[0], headers)
        self._unsent = _head(answer, self._kept) + (b"" if method == "HEAD" else answer.body)
        self.deadline = time.monotonic() + _PATIENCE_S


def _head(answer: Answer, kept: bool) -> bytes:
    said = {
        "Server": "aliquot",
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        "Content-Type": answer.content_type,
        "Content-Length": len(answer.body),
        **answer.headers,
        **({} if kept else {"Connection": "close"}),
    }
    lines = (f"{name}: {value}\r\n" for name, value in said.items())
    return f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, '')}\r\n{''.join(lines)}\r\n".encode()


def _headers(lines: list[str]) -> dict[str, str]:
    """What is said twice counts as a list."""
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            found[key] = f"{found[key]}, {value.strip()}" if key in found else value.strip()
    return found
