"""Unix sockets that speak gRPC: which file is ours, servers that end for good, channels.

What grpclib leaves to its user: it does not remove the socket file, its connections outlive the server (so that waiting
for its end never returns from Python 3.12 on), and it answers unknown methods without a content type, which Go's client
cannot read.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from weakref import WeakSet

from grpclib.client import Channel
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream

from aliquot.integrations.kubernetes.kubelet.errors import KubeletAwayError
from aliquot.integrations.kubernetes.kubelet.protos.deviceplugin_pb2 import Empty

PATH_LIMIT = 107
"""Bytes that a unix socket's path may have on Linux."""
CLOSE_S = 2.0

Identity = tuple[int, int, int]


def identity(path: str) -> Identity | None:
    """Which file lies at a path: device, inode and the time of its last change, since inodes are used again at once.
    None where there is none.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def channel(path: str) -> Channel:
    """A client's connection to a socket, made at the first call."""
    return Channel(path=path)


async def _unknown(_stream: Stream[Empty, Empty]) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "no such method here")


class _Methods(dict[str, Handler]):
    """A table of methods that has an answer for every name."""

    _missing = Handler(_unknown, Cardinality.UNARY_UNARY, Empty, Empty)

    def get(self, key: str, default: object = None) -> Handler:
        return super().get(key, self._missing)


class _EndingServer(Server):
    """A server whose connections end with it."""

    def __init__(self, handlers: Collection[object]) -> None:
        super().__init__(handlers)  # type: ignore[arg-type]
        self._mapping = _Methods(self._mapping)
        self._protocols: WeakSet[H2Protocol] = WeakSet()

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        self._protocols.add(protocol)
        return protocol

    def close(self) -> None:
        super().close()
        for protocol in list(self._protocols):
            if hasattr(protocol, "processor"):
                protocol.processor.close("server closed")


class SocketServer:
    """gRPC handlers on a socket file. ``listen`` may be called again when the file was wiped."""

    def __init__(self, path: str, handlers: Collection[object]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: _EndingServer | None = None
        self._mine: Identity | None = None

    @property
    def there(self) -> bool:
        """Whether the file at the path is still the one that is served."""
        return self._mine is not None and identity(self.path) == self._mine

    async def listen(self) -> None:
        """Take the path: a file that is there (of a process that was killed, or of our predecessor) is removed. Raises
        KubeletAwayError where the directory is missing or the path cannot be bound.
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
            self._mine = identity(self.path)
            server = _EndingServer(self._handlers)
            await server.start(sock=sock)
        except OSError as failure:
            sock.close()
            raise KubeletAwayError(
                f"cannot serve {self.path}: {failure.strerror or failure}",
                next_step=f"ls -ld {os.path.dirname(self.path)}",
            ) from failure
        self._server = server

    async def close(self) -> None:
        """End all connections, stop listening and remove the file if it is still ours. A second call does nothing."""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), CLOSE_S)
        if self.there:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self._mine = None
