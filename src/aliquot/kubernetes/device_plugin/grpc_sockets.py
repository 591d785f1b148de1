"""gRPC over Unix sockets: file identity, servers that end their connections, and calls.

This module fills gaps of grpclib:

- It does not remove the socket file.
- Its connections outlive the server, so that waiting for the end never returns since Python 3.12.
- It answers unknown methods without a content type, which Go's client cannot read.
- If a peer hangs up at once, it raises an error that is not about the connection.

grpcio has none of these gaps, but importing it takes 20 MiB (PSS) instead of 13. With eight sockets, it also needs 8
threads instead of 1.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TypeVar
from weakref import WeakSet

from google.protobuf.message import DecodeError
from grpclib.client import Channel
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream
from h2.exceptions import H2Error

from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.device_plugin.protos.deviceplugin_pb2 import Empty

PATH_LIMIT = 107
"""Maximum length of a Unix socket's path on Linux, in bytes."""
CLOSE_S = 2.0

T = TypeVar("T")
Identity = tuple[int, int, int]


def identity(path: str) -> Identity | None:
    """Return device, inode and change time of the file at a path, as inodes are reused at once. None if missing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


class NoReplyError(Exception):
    """There was no response, or an invalid one. The text is the reason."""


async def call_socket(
    path: str, timeout_s: float, call: Callable[[Channel], Awaitable[T]], codec: CodecBase | None = None
) -> T:
    """Make a call on a socket. Raises NoReplyError, and GRPCError if the server refuses."""
    channel = Channel(path=path, codec=codec)
    try:
        async with asyncio.timeout(timeout_s):  # a call's own deadline does not include connecting
            return await call(channel)
    except TimeoutError as failure:
        raise NoReplyError("the call timed out") from failure
    except AttributeError as failure:
        # The server hung up between connecting and the call, and the library has dropped its transport.
        if failure.name != "_transport":
            raise
        raise NoReplyError("the connection was closed at once") from failure
    except (OSError, StreamTerminatedError, H2Error, DecodeError) as failure:
        raise NoReplyError(str(failure)) from failure
    finally:
        channel.close()


async def _unknown(_stream: Stream[Empty, Empty]) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "unknown method")


class _Methods(dict[str, Handler]):
    """A table of methods with a handler for every name."""

    _missing = Handler(_unknown, Cardinality.UNARY_UNARY, Empty, Empty)

    def get(self, key: str, default: object = None) -> Handler:
        return super().get(key, self._missing)


class _Protocol(H2Protocol):
    """A server's side of a connection, which may end before it has begun."""

    unwanted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.unwanted:
            transport.close()
        else:
            super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if hasattr(self, "processor"):
            super().connection_lost(exc)

    def end(self) -> None:
        self.unwanted = True
        if hasattr(self, "processor"):
            self.processor.close("server closed")


class _EndingServer(Server):
    """A server whose connections end with it, including those that are just being accepted."""

    def __init__(self, handlers: Collection[object]) -> None:
        super().__init__(handlers)  # type: ignore[arg-type]
        self._mapping = _Methods(self._mapping)
        self._protocols: WeakSet[_Protocol] = WeakSet()
        self._ended = False

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        protocol = _Protocol(made.handler, made.config, made.h2_config)
        protocol.unwanted = self._ended
        self._protocols.add(protocol)
        return protocol

    def close(self) -> None:
        self._ended = True
        super().close()
        for protocol in list(self._protocols):
            protocol.end()


class SocketServer:
    """gRPC handlers on a socket file. ``listen`` may be called again after the file was deleted."""

    def __init__(self, path: str, handlers: Collection[object]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: _EndingServer | None = None
        self._identity: Identity | None = None

    @property
    def owns_path(self) -> bool:
        """True if the file at the path is still the one that is served."""
        return self._identity is not None and identity(self.path) == self._identity

    async def listen(self) -> None:
        """Bind the path and serve; remove a file that a killed process or a previous agent left there.

        Raises KubeletUnavailableError if the directory is missing or the path cannot be bound.
        """
        await self.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if len(os.fsencode(self.path)) > PATH_LIMIT:
                raise OSError(f"the path is longer than {PATH_LIMIT} bytes")
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            sock.bind(self.path)
            os.chmod(self.path, 0o600)
            self._identity = identity(self.path)
            server = _EndingServer(self._handlers)
            await server.start(sock=sock)
        except BaseException as failure:
            sock.close()
            if not isinstance(failure, OSError):
                raise
            raise KubeletUnavailableError(
                f"cannot serve {self.path}: {failure.strerror or failure}",
                next_step=f"ls -ld {os.path.dirname(self.path)}",
            ) from failure
        self._server = server

    async def close(self) -> None:
        """Remove the file if it is still the own one, end all connections and stop listening. Idempotent."""
        if self.owns_path:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self._identity = None
        if self._server is not None:
            server, self._server = self._server, None
            await _yield_to_loop()  # asyncio loses a connection that it accepts while its server closes
            server.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), CLOSE_S)
            await _yield_to_loop()


async def _yield_to_loop() -> None:
    """Let the event loop run as often as a connection that is being accepted needs to begin or to end."""
    for _ in range(8):
        await asyncio.sleep(0)
