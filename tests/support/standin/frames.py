"""WebSocket messages on a connection, on the server's side (RFC 6455): the protocol of the stand-in's ``exec``."""

from __future__ import annotations

import base64
import hashlib
import struct
from io import BufferedIOBase

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CLOSE, _PING, _PONG, _BINARY = 8, 9, 10, 2


def accept(key: str) -> str:
    """Return the answer to a client's ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1(key.encode() + _MAGIC).digest()).decode()


class Frames:
    """Messages over a pair of files. ``receive`` answers pings."""

    def __init__(self, source: BufferedIOBase, sink: BufferedIOBase) -> None:
        self._source, self._sink = source, sink

    def receive(self) -> bytes | None:
        """Return the next message, or None when the client closes the connection.

        Raises:
            ConnectionError: the connection ended without a close message
        """
        whole = b""
        while True:
            last, code, data = self._frame()
            if code == _CLOSE:
                return None
            if code == _PING:
                self._write(_PONG, data)
            elif code != _PONG:
                whole += data
                if last:
                    return whole

    def send(self, data: bytes) -> None:
        self._write(_BINARY, data)

    def close(self, code: int = 1000) -> None:
        """Send a close message, and wait for the other side's."""
        self._write(_CLOSE, struct.pack(">H", code))
        while self.receive() is not None:
            continue

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._exactly(2)
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self._exactly(2 if length == 126 else 8))
        if not second & 0x80:
            raise ConnectionError("a client's frame without a mask")
        mask = self._exactly(4)
        data = self._exactly(length)
        return bool(first & 0x80), first & 0x0F, bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))

    def _exactly(self, count: int) -> bytes:
        data = self._source.read(count)
        if len(data) < count:
            raise ConnectionError("the client went in the middle of a frame")
        return data

    def _write(self, code: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = bytes([0x80 | code, size])
        else:
            form, mark = (">BBH", 126) if size < 65536 else (">BBQ", 127)
            head = struct.pack(form, 0x80 | code, mark, size)
        self._sink.write(head + data)
        self._sink.flush()
