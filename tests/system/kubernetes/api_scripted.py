"""A scripted HTTP server, which also misbehaves on demand: silence, half lines, resets, floods.

It is for errors that no correct API server makes on demand. It knows nothing of Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kubeconfig import from_files
from aliquot.kubernetes.client.session import ApiSession
from aliquot.kubernetes.client.transport import Transport


class Seen(msgspec.Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    certificate: str = ""

    @property
    def watching(self) -> bool:
        return self.query.get("watch") == "true"

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The way back to the client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def answer(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole answer. Text is sent as it is, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(data)}", "Content-Type: application/json"]
        lines += [f"{key}: {value}" for key, value in (headers or {}).items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode() + data)

    async def refuse(
        self, status: int, reason: str = "", message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a Kubernetes ``Status``."""
        await self.answer(failure(status, reason, message), status, headers)

    async def begin(self) -> None:
        """Send the headers of an answer that continues."""
        await self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def event(self, kind: str, body: object) -> None:
        """Send one line of a watch."""
        await self.chunk(json.dumps({"type": kind, "object": body}, ensure_ascii=False).encode() + b"\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """End an answer that continues, in the proper way."""
        await self.raw(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Reset the connection."""
        transport = self.writer.transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        transport.abort()


Play = Callable[[Seen, Wire], Awaitable[None]]


class Scripted:
    """A server that runs ``play`` for each request. ``seen`` lists the requests. An error of the script itself is
    raised on exit.
    """

    def __init__(self, play: Play, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self.faults: list[BaseException] = []
        self._play = play
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)
        if self.faults:
            raise self.faults[0]

    def watches(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.watching]

    def lists(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "GET" and not seen.watching]

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while seen := await _read(reader, writer):
                self.seen.append(seen)
                await self._play(seen, Wire(writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as fault:  # noqa: BLE001 - shown to the test on exit
            self.faults.append(fault)
        finally:
            with suppress(Exception):
                writer.transport.abort()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    peer = writer.transport.get_extra_info("peercert") or {}
    name = "".join(value for part in peer.get("subject", ()) for key, value in part if key == "commonName")
    return Seen(method, url.path, dict(parse_qsl(url.query)), headers, body, name)


def failure(status: int, reason: str = "", message: str = "", **details: object) -> dict[str, object]:
    """Build a Kubernetes ``Status``."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message,
        **({"details": details} if details else {}),
    }


def node(name: str, version: int, uid: str = "", **labels: str) -> dict[str, object]:
    """Build a Node as the server writes it."""
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": {}}


def listed(version: int, *items: dict[str, object], more: str = "") -> dict[str, object]:
    """Build a list as the server writes it."""
    return {
        "kind": "NodeList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version), **({"continue": more} if more else {})},
        "items": list(items),
    }


def api(
    folder: Path,
    url: str,
    *,
    timeout_s: float = 5,
    patience_s: float = 5,
    user: Mapping[str, object] | None = None,
    cluster: Mapping[str, object] | None = None,
) -> Api:
    """Connect a client to the server at ``url``, through a kubeconfig written to ``folder``."""
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "ours"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    access = from_files([str(path)])
    return Api(ApiSession(Transport(access), timeout_s=timeout_s, patience_s=patience_s), access.namespace)
