"""HTTP connections: read a request, answer it, stream watches."""

from __future__ import annotations

import contextlib
import ssl
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from support.standin.answers import PlainRefusalError, RefusalError
from support.standin.control import Asked
from support.standin.frames import Frames
from support.standin.render import Rendered, refused

if TYPE_CHECKING:
    from support.standin.server import Standin

JSON = dict[str, Any]
HANDSHAKE_S = 10.0


class Handler(BaseHTTPRequestHandler):
    """A handler. ``standin`` is set on a subclass, one for each server."""

    standin: Standin
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(HANDSHAKE_S)
            self.request.do_handshake()
            self.request.settimeout(None)
        super().setup()
        self.born = self.standin.control.generation
        self.standin.opened(self.connection)

    def finish(self) -> None:
        self.standin.closed(self.connection)
        try:
            super().finish()
        except (OSError, ValueError):
            return

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, TimeoutError, OSError):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are counted instead."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_OPTIONS(self) -> None:
        self._serve()

    def _serve(self) -> None:
        standin = self.standin
        body = self._body()
        time.sleep(standin.control.latency_s)
        standin.control.wait_while_hanging()
        if standin.control.mode == "error":
            text = "Internal error occurred: the test requested a failure"
            self._send(
                refused(RefusalError(500, "InternalError", text, {"causes": [{"message": "failure requested"}]}))
            )
            return
        url = urlsplit(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        asked = Asked("before", self.command, self.path, headers.get("user-agent", ""))
        standin.control.gate(asked)
        try:
            answer = standin.answer(self.command, url.path, url.query, headers, body, self._alive)
        except PlainRefusalError as refusal:
            self._send(Rendered(refusal.code, "text/plain; charset=utf-8", refusal.message.encode()))
            return
        except RefusalError as refusal:
            self._send(refused(refusal))
            return
        except Exception as error:  # noqa: BLE001  an error of the stand-in: report it to client and log
            traceback.print_exc()
            self._send(refused(RefusalError(500, "InternalError", f"the stand-in failed: {error!r}")))
            return
        standin.control.gate(msgspec.structs.replace(asked, when="after"))
        if answer.session is not None:
            self._talk(answer, answer.session)
        elif answer.lines is None:
            self._send(answer)
        else:
            self._stream(answer)

    def _body(self) -> bytes:
        """Return the request's body, which may be chunked, as ``kubectl create --raw`` sends it."""
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(found)

    def _alive(self) -> bool:
        """Report whether the client is connected and the watches were not dropped. A client that sends anything during
        a watch no longer waits for the watch.
        """
        if self.standin.stopping or self.born != self.standin.control.generation:
            return False
        try:
            self.connection.setblocking(False)
            self.connection.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.connection.setblocking(True)
        return False

    def _send(self, answer: Rendered) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.media)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.wfile.flush()
        self.born = self.standin.control.generation

    def _talk(self, answer: Rendered, session: Callable[[Frames], None]) -> None:
        """Run a WebSocket session. Afterwards the connection is not reused."""
        self.close_connection = True
        self.send_response(answer.code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        session(Frames(self.rfile, self.wfile))

    def _stream(self, answer: Rendered) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.media)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        with self.standin.control.streaming(self.born):
            for line in answer.lines or ():
                data = msgspec.json.encode(line) + b"\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
        if self._alive():
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        else:
            self.close_connection = True
