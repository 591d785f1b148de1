"""Why a command could not be run in a container, by who says so: the API server, kubelet, or the container's runtime.

The texts that are looked for were taken from kube-apiserver and kubelet 1.36 with containerd 1.7. kubelet's refusals
come as plain text in a 500, or, once the WebSocket is open, as the ``Status`` that ends the command.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.kubernetes.client.errors import (
    ApiAwayError,
    ApiError,
    ForbiddenError,
    NotFoundError,
    Request,
    Status,
    from_status,
)

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""How a program ends that is not there, or that may not be run; as in a shell."""
_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory", re.IGNORECASE)
_NO_RIGHT = re.compile(r"permission denied", re.IGNORECASE)
_NO_KUBELET = re.compile(r"error dialing backend|error sending request|no preferred addresses found")
_FRESH_KUBELET = re.compile(r"^pod does not exist")
_NO_CONTAINER = re.compile(r"container not found|is not valid for pod|does not have a host assigned")
_VERB = re.compile(r" cannot (get|create) resource ")
_OTHER_NAME = re.compile(r'^(?:pods|nodes) "([^"]+)" not found')


class ExecError(ApiError):
    """The command could not be run: kubelet or the container's runtime says no."""

    code = "KUBERNETES_EXEC"


class NoContainerError(ExecError):
    """There is no such container, or it does not run."""

    code = "KUBERNETES_NO_CONTAINER"


class UnfinishedError(ExecError):
    """The command began, and nobody knows how it ended: it took too long, said too much, or the connection broke.
    Kubernetes does not end it then: it may run on.
    """


def refused(status: int, body: bytes, retry_after: str | None, asked: Request) -> ApiError:
    """The error for an answer that opened no WebSocket."""
    said = _status(body)
    message = " ".join((said.message or "").split())
    if status < 400:
        text = f"the API server refused to {asked}: it answered {status}"
        return ApiError(f"{text}; something on the way does not let WebSockets through", status=status)
    if status == 403 and message.endswith("is forbidden:"):
        # Two rights are asked for, "get" for the WebSocket and "create" for the command (since Kubernetes 1.35), and
        # whoever lacks the second is told nothing more than that.
        return ForbiddenError(f"we lack the right to {asked}", next_step=asked.can_i(), status=403, reason="Forbidden")
    other = _OTHER_NAME.match(message)
    if status == 404 and other and other[1] != asked.name:
        brief = f"{_pod(asked)} was on node {other[1]}, which is gone"
        return NotFoundError(brief, next_step="kubectl get nodes", status=404, reason="NotFound")
    if known := _known(message, asked, status):
        return known
    verb = _VERB.search(message)
    asked = msgspec.structs.replace(asked, verb=verb[1]) if verb else asked
    return from_status(said, status, asked, retry_after=retry_after)


def failed(shown: str, message: str, reason: str, asked: Request) -> ApiError:
    """The error for a command that was not begun although the way was open; ``shown`` is the command."""
    text = plain(message)
    brief = f"{shown} could not be run in {_pod(asked)}: {text}"
    return _known(text, asked, 500) or ExecError(brief, next_step=look(asked), status=500, reason=reason)


def could_not_start(message: str) -> int | None:
    """The exit status of a program that the runtime could not start, None where that is not what it says."""
    if _NO_PROGRAM.search(message):
        return NOT_FOUND
    return NOT_EXECUTABLE if _NO_RIGHT.search(message) else None


def unfinished(shown: str, why: str, said: tuple[str, ...], asked: Request) -> UnfinishedError:
    """The error for a command that nobody heard the end of; ``said`` are the last lines that it wrote."""
    brief = f"nobody knows how {shown} ended in {_pod(asked)}: {why}"
    return UnfinishedError(brief, details=tuple(f"it had said: {line}" for line in said), next_step=look(asked))


def plain(message: str) -> str:
    """What the runtime said, without what each on the way said that it says."""
    last = " ".join(message.split()).rpartition("unable to start container process: ")[2]
    return re.sub(r"^(Internal error occurred: )+", "", last)


def look(asked: Request) -> str:
    return f"kubectl -n {asked.namespace} describe pod {asked.name}"


def _known(message: str, asked: Request, status: int) -> ApiError | None:
    if _NO_KUBELET.search(message):
        brief = f"the kubelet of {_pod(asked)} does not answer the API server: {message}"
        return ApiAwayError(brief, next_step=f"kubectl -n {asked.namespace} get pod {asked.name} -o wide", status=503)
    if _FRESH_KUBELET.search(message):  # the API server knows the pod: a kubelet that has just started learns of it
        brief = f"the kubelet of {_pod(asked)} does not know it yet: {message}"
        return ApiAwayError(brief, next_step=look(asked), status=503)
    if _NO_CONTAINER.search(message):
        brief = f"{_pod(asked)} has no such container that runs: {message}"
        return NoContainerError(brief, next_step=look(asked), status=status)
    return None


def _pod(asked: Request) -> str:
    return f"pod {asked.namespace}/{asked.name}"


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:600].decode(errors="replace"))
