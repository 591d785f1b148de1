"""Running a command in a container, as ``kubectl exec`` does.

Messages begin with the number of their channel: 0 input, 1 output, 2 errors, 3 how it ended (a ``Status``). The fifth
version of the protocol adds 255, which ends a channel: without it nobody learns that there is no more input.
Sources: Kubernetes, KEP-4006 (v5.channel.k8s.io; API servers from 1.29 or 1.30), staging/src/k8s.io/apimachinery,
pkg/util/remotecommand (constants), client-go/tools/remotecommand (exit codes in ``details.causes``).
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiRequest, StatusDetails
from aliquot.kubernetes.client.exec_errors import (
    ExecError,
    NoContainerError,
    UnfinishedError,
    handshake_error,
    runtime_message,
    start_error,
    start_exit_status,
    unfinished_error,
)
from aliquot.kubernetes.client.pods import Pod
from aliquot.kubernetes.client.transport import HttpCall
from aliquot.kubernetes.client.websocket import WebSocketRejectedError, open_websocket

__all__ = ["CommandResult", "ExecError", "NoContainerError", "UnfinishedError", "exec_"]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
OUTPUT_MOST = 16 * 2**20
"""Bytes that a command may say: more is no output of a driver's program."""
SETTLE_S = 2.0
"""How long the connection may stay open after the command has ended."""
_CHUNK_BYTES = 2**15
_LINE = 300


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended: its exit status, and what it wrote to standard output and standard error."""

    status: int
    out: str = ""
    err: str = ""


class _ExitStatus(msgspec.Struct, frozen=True):
    """The ``Status`` on channel 3."""

    status: str = ""
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


async def exec_(
    api: Api, pod: str, namespace: str, container: str, command: Sequence[str], timeout_s: float, stdin: bytes = b""
) -> CommandResult:
    """Runs ``command`` (a program and its words; no shell) in a container, and waits ``timeout_s`` seconds at most. A
    program that is not there ends with 127, one that may not be run with 126, as in a shell. ``stdin`` needs an API
    server that speaks v5, and a command that reads all of it: of others the end is not always told (by kubelet 1.36
    with containerd 1.7, to kubectl neither).

    Needs the rights to ``get`` and to ``create`` pods/exec. Raises NotFoundError (no such pod), ForbiddenError,
    NoContainerError, ApiUnavailableError (nothing was begun; a ConnectionBrokenError: perhaps), UnfinishedError (it
    was), and other ApiErrors.
    """
    if not command:
        raise ValueError("no command")
    request = ApiRequest("create", str(Pod.TYPE), pod, namespace, "exec")
    call = HttpCall(request, "GET", Pod.TYPE.path(namespace, pod, "exec"))
    flags = [("stdout", "true"), ("stderr", "true"), *([("stdin", "true")] if stdin else [])]
    query = [("container", container), *flags, *(("command", word) for word in command)]
    protocols = PROTOCOLS[:1] if stdin else PROTOCOLS
    conversation = _ExecConversation(request, shlex.join(command))
    end = asyncio.get_running_loop().time() + timeout_s
    try:
        connection = await open_websocket(api.session, call, query, protocols, timeout_s)
    except WebSocketRejectedError as answer:
        raise handshake_error(answer.status, answer.body, answer.retry_after, request) from None
    try:
        if connection.subprotocol not in protocols:
            text = f"the API server speaks none of {', '.join(protocols)}"
            raise ExecError(f"{text}, which running commands in containers needs", next_step="kubectl version")
        async with asyncio.timeout_at(end):
            return await conversation.run(connection, stdin)
    except TimeoutError:
        raise conversation.unfinished_error(
            f"it did not end within {timeout_s:g} s, and may still be running"
        ) from None
    finally:
        await connection.close()


class _ExecConversation:
    """One command's conversation."""

    def __init__(self, request: ApiRequest, command_text: str) -> None:
        self._request = request
        self._command_text = command_text
        self._received = {1: bytearray(), 2: bytearray(), 3: bytearray()}

    async def run(self, connection: ClientConnection, stdin: bytes) -> CommandResult:
        send_task = asyncio.create_task(_send(connection, stdin))
        try:
            close_reason = await self._receive(connection)
        finally:
            send_task.cancel()
            await asyncio.gather(send_task, return_exceptions=True)
        end = self._exit_status()
        if end is None:
            raise self.unfinished_error(f"the connection ended before it did{close_reason}")
        return self._result(end)

    def unfinished_error(self, reason: str) -> UnfinishedError:
        last_lines = tuple(line[:_LINE] for line in self._text(1, 2).strip().splitlines()[-3:])
        return unfinished_error(self._command_text, reason, last_lines, self._request)

    async def _receive(self, connection: ClientConnection) -> str:
        """Everything until the connection ends; how it ended, where that was no orderly end."""
        remaining = OUTPUT_MOST
        try:
            while True:
                async with asyncio.timeout(None if self._exit_status() is None else SETTLE_S) as bound:
                    frame = await connection.recv()
                data = frame.encode() if isinstance(frame, str) else frame
                if data and data[0] in self._received:
                    self._received[data[0]] += data[1:]
                    remaining -= len(data)
                if remaining < 0:
                    raise self.unfinished_error(f"it said more than {OUTPUT_MOST // 2**20} MiB")
        except ConnectionClosed as closed:
            return f" ({closed.rcvd.reason or closed.rcvd.code})" if closed.rcvd is not None else ""
        except TimeoutError:
            if not bound.expired():
                raise
            return ""

    def _exit_status(self) -> _ExitStatus | None:
        """None until all of it is here."""
        try:
            return msgspec.json.decode(self._received[3], type=_ExitStatus) if self._received[3] else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _result(self, end: _ExitStatus) -> CommandResult:
        out, err = self._text(1), self._text(2)
        if end.status == "Success":
            return CommandResult(0, out, err)
        causes = (end.details.causes if end.details else None) or ()
        code = next((c.message for c in causes if c.reason == "ExitCode" and c.message), "")
        if end.reason == "NonZeroExitCode" and code.isdigit():
            return CommandResult(int(code), out, err)
        message = runtime_message(end.message or "")
        status = start_exit_status(message)
        if status is None:
            raise start_error(self._command_text, message, end.reason or "", self._request)
        return CommandResult(status, out, "\n".join(filter(None, (err, message))))

    def _text(self, *channels: int) -> str:
        return "\n".join(self._received[c].decode(errors="replace") for c in channels if self._received[c])


async def _send(connection: ClientConnection, stdin: bytes) -> None:
    """The input, and its end. A command that ends without reading all of it is none of our business."""
    if not stdin:
        return
    with suppress(ConnectionClosed):
        for start in range(0, len(stdin), _CHUNK_BYTES):
            await connection.send(b"\x00" + stdin[start : start + _CHUNK_BYTES])
        await connection.send(b"\xff\x00")
