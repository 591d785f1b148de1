"""Commands in containers, as ``kubectl exec`` runs them.

Messages begin with the number of their channel: 0 stdin, 1 stdout, 2 stderr, 3 the exit status (a ``Status``).
Version 5 of the protocol adds 255, which closes a channel: without it the command never sees the end of its input.
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
"""Limit of a command's output in bytes, far above what a driver program writes."""
SETTLE_S = 2.0
"""Seconds that the connection may stay open after the command has ended."""
_CHUNK_BYTES = 2**15
_LINE = 300


class CommandResult(msgspec.Struct, frozen=True):
    """Exit status, standard output and standard error of a command."""

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
    api: Api, pod: str, namespace: str, container: str, command: Sequence[str], timeout_s: float, *, stdin: bytes = b""
) -> CommandResult:
    """Run ``command`` (a program and its arguments; no shell) in a container for at most ``timeout_s`` seconds.

    As in a shell, the status is 127 for a program that does not exist and 126 for one that is not executable.
    ``stdin`` needs an API server that supports v5, and a command that reads all of its input. Otherwise kubelet (1.36
    with containerd 1.7) does not always report the end of the command, to kubectl neither.

    Needs permission to ``get`` and ``create`` pods/exec. Raises NotFoundError (no such pod), ForbiddenError,
    NoContainerError, ApiUnavailableError (the command did not start), ConnectionBrokenError (it may have started),
    UnfinishedError (it started), and other ApiErrors.
    """
    if not command:
        raise ValueError("the command is empty")
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
            text = f"the API server supports none of {', '.join(protocols)}"
            raise ExecError(f"{text}, so commands cannot run in containers", next_step="kubectl version")
        async with asyncio.timeout_at(end):
            return await conversation.run(connection, stdin)
    except TimeoutError:
        raise conversation.unfinished_error(f"it did not end within {timeout_s:g} s and may still run") from None
    finally:
        await connection.close()


class _ExecConversation:
    """The message exchange of one command."""

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
            raise self.unfinished_error(f"the connection closed before the command ended{close_reason}")
        return self._result(end)

    def unfinished_error(self, reason: str) -> UnfinishedError:
        last_lines = tuple(line[:_LINE] for line in self._text(1, 2).strip().splitlines()[-3:])
        return unfinished_error(self._command_text, reason, last_lines, self._request)

    async def _receive(self, connection: ClientConnection) -> str:
        """Receive messages until the connection ends. Returns the close reason, empty for an orderly end."""
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
                    raise self.unfinished_error(f"it wrote more than {OUTPUT_MOST // 2**20} MiB")
        except ConnectionClosed as closed:
            return f" ({closed.rcvd.reason or closed.rcvd.code})" if closed.rcvd is not None else ""
        except TimeoutError:
            if not bound.expired():
                raise
            return ""

    def _exit_status(self) -> _ExitStatus | None:
        """Return the exit status; None until all of it has arrived."""
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
    """Send the input and close its channel. A command may end without reading all of it."""
    if not stdin:
        return
    with suppress(ConnectionClosed):
        for start in range(0, len(stdin), _CHUNK_BYTES):
            await connection.send(b"\x00" + stdin[start : start + _CHUNK_BYTES])
        await connection.send(b"\xff\x00")
