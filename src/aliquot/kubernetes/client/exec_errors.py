"""Errors of commands in containers, from the API server, kubelet or the container runtime.

The patterns match messages of kube-apiserver and kubelet 1.36 with containerd 1.7. The kubelet refuses with plain text
in a 500. Once the WebSocket is open, it refuses with the ``ApiStatus`` that ends the command.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiRequest,
    ApiStatus,
    ApiUnavailableError,
    ForbiddenError,
    NotFoundError,
    from_status,
)

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit statuses for a program that does not exist or is not executable, as in a shell."""
_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory", re.IGNORECASE)
_NO_RIGHT = re.compile(r"permission denied", re.IGNORECASE)
_NO_KUBELET = re.compile(r"error dialing backend|error sending request|no preferred addresses found")
_FRESH_KUBELET = re.compile(r"^pod does not exist")
_NO_CONTAINER = re.compile(r"container not found|is not valid for pod|does not have a host assigned")
_VERB = re.compile(r" cannot (get|create) resource ")
_OTHER_NAME = re.compile(r'^(?:pods|nodes) "([^"]+)" not found')


class ExecError(ApiError):
    """The command could not run: kubelet or the container runtime refused it."""

    code = "KUBERNETES_EXEC"


class NoContainerError(ExecError):
    """The container does not exist or is not running."""

    code = "KUBERNETES_NO_CONTAINER"


class UnfinishedError(ExecError):
    """The command started, but its exit status is unknown: it timed out, wrote too much, or the connection broke.
    Kubernetes does not stop it then: it may still run.
    """


def handshake_error(status: int, body: bytes, retry_after: str | None, request: ApiRequest) -> ApiError:
    """Build the error for a response that did not open a WebSocket."""
    error_status = _status(body)
    message = " ".join((error_status.message or "").split())
    if status < 400:
        text = f"the API server refused to {request}: it answered {status}"
        return ApiError(f"{text}; a proxy in between may block WebSockets", status=status)
    if status == 403 and message.endswith("is forbidden:"):
        # The API server checks "get" for the WebSocket and "create" for the command (since Kubernetes 1.35). If the
        # second is missing, its message does not name the user.
        return ForbiddenError(
            f"missing permission to {request}", next_step=request.can_i_command(), status=403, reason="Forbidden"
        )
    other = _OTHER_NAME.match(message)
    if status == 404 and other and other[1] != request.name:
        brief = f"{_pod_text(request)} was on node {other[1]}, which no longer exists"
        return NotFoundError(brief, next_step="kubectl get nodes", status=404, reason="NotFound")
    if known_error := _known_error(message, request, status):
        return known_error
    verb = _VERB.search(message)
    request = msgspec.structs.replace(request, verb=verb[1]) if verb else request
    return from_status(error_status, status, request, retry_after=retry_after)


def start_error(command_text: str, message: str, reason: str, request: ApiRequest) -> ApiError:
    """Build the error for a command that did not start although the WebSocket opened."""
    text = runtime_message(message)
    brief = f"{command_text} could not run in {_pod_text(request)}: {text}"
    return _known_error(text, request, 500) or ExecError(
        brief, next_step=describe_command(request), status=500, reason=reason
    )


def start_exit_status(message: str) -> int | None:
    """Return the exit status for a program that the runtime could not start; None if the message is another one."""
    if _NO_PROGRAM.search(message):
        return NOT_FOUND
    return NOT_EXECUTABLE if _NO_RIGHT.search(message) else None


def unfinished_error(
    command_text: str, reason: str, last_lines: tuple[str, ...], request: ApiRequest
) -> UnfinishedError:
    """Build the error for a command without an exit status; ``last_lines`` are the last lines that it wrote."""
    brief = f"the exit status of {command_text} in {_pod_text(request)} is unknown: {reason}"
    return UnfinishedError(
        brief, details=tuple(f"last output: {line}" for line in last_lines), next_step=describe_command(request)
    )


def runtime_message(message: str) -> str:
    """Return the runtime's own message without the prefixes of the programs that passed it on."""
    last = " ".join(message.split()).rpartition("unable to start container process: ")[2]
    return re.sub(r"^(Internal error occurred: )+", "", last)


def describe_command(request: ApiRequest) -> str:
    return f"kubectl -n {request.namespace} describe pod {request.name}"


def _known_error(message: str, request: ApiRequest, status: int) -> ApiError | None:
    if _NO_KUBELET.search(message):
        brief = f"the API server cannot reach the kubelet of {_pod_text(request)}: {message}"
        return ApiUnavailableError(
            brief, next_step=f"kubectl -n {request.namespace} get pod {request.name} -o wide", status=503
        )
    if _FRESH_KUBELET.search(message):  # the API server knows the pod; a kubelet that just started will learn of it
        brief = f"the kubelet of {_pod_text(request)} does not know it yet: {message}"
        return ApiUnavailableError(brief, next_step=describe_command(request), status=503)
    if _NO_CONTAINER.search(message):
        brief = f"{_pod_text(request)} has no running container of that name: {message}"
        return NoContainerError(brief, next_step=describe_command(request), status=status)
    return None


def _pod_text(request: ApiRequest) -> str:
    return f"pod {request.namespace}/{request.name}"


def _status(body: bytes) -> ApiStatus:
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiStatus(message=body[:600].decode(errors="replace"))
