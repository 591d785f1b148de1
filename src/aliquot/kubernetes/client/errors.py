"""Errors of API requests, each with a message and the next command to run.

``from_response`` maps a refused request to one of these; a request without a response is an ``ApiUnavailableError``.
Source: the Kubernetes API conventions, for ``Status`` bodies (reason, message, details.causes and
details.retryAfterSeconds).
"""

from __future__ import annotations

import re
import shlex

import msgspec

from aliquot.errors import AliquotError


class ApiRequest(msgspec.Struct, frozen=True):
    """A request in RBAC terms."""

    verb: str
    resource: str
    """kubectl's name, for example ``nodes`` or ``leases.coordination.k8s.io``."""
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{name}" + (f" in namespace {self.namespace}" if self.namespace else "")

    def can_i_command(self, user: str = "") -> str:
        """Build the command that asks the cluster whether ``user`` may send this request."""
        words = ["kubectl", "auth", "can-i", self.verb, self.resource + (f"/{self.name}" if self.name else "")]
        words += [f"--subresource={self.subresource}"] if self.subresource else []
        words += ["-n", self.namespace] if self.namespace else []
        return shlex.join(words + ([f"--as={user}"] if user else []))


class ApiError(AliquotError):
    """The API server refused a request.

    ``status`` is the HTTP status, 0 if no response came. ``reason`` is the server's reason, or that of the cause
    (``TOO_LARGE``, ``BUDGET``). ``retry_after_s`` is how many seconds the server asks to wait.
    """

    code = "KUBERNETES"
    exit_code = 20

    def __init__(
        self,
        brief: str,
        *,
        details: tuple[str, ...] = (),
        next_step: str | None = None,
        status: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class UnreadableObjectError(ApiError):
    """An object that the API server sent is not valid for its kind.

    ``what`` names the kind and the fault.
    """

    def __init__(self, kind: str, fault: str) -> None:
        self.what = f"a {kind} that cannot be read: {fault}"
        super().__init__(f"the API server sent {self.what}")


class NotFoundError(ApiError):
    """The object does not exist, or the cluster does not serve its kind."""

    code = "KUBERNETES_NOT_FOUND"


class ConflictError(ApiError):
    """The object changed since it was read, or it already exists (``reason`` AlreadyExists)."""

    code = "KUBERNETES_CONFLICT"


class UnauthorizedError(ApiError):
    """The credentials are missing, wrong or expired, or their exec plugin failed."""

    code = "KUBERNETES_UNAUTHORIZED"


class ForbiddenError(ApiError):
    """RBAC or an admission check denied the request."""

    code = "KUBERNETES_FORBIDDEN"


class ThrottledError(ApiError):
    """The API server throttles requests, or a PodDisruptionBudget blocks an eviction."""

    code = "KUBERNETES_THROTTLED"


class GoneError(ApiError):
    """The resource version is older than the API server's history."""

    code = "KUBERNETES_GONE"


class ApiUnavailableError(ApiError):
    """The API server did not answer: nothing listens, the connection broke, it timed out, or it fails (5xx)."""

    code = "KUBERNETES_AWAY"


class ConnectionBrokenError(ApiUnavailableError):
    """The connection broke before the response: it was idle for too long, or the server stopped. The server may have
    done the request.
    """


class StatusCause(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """The ``Status`` of a failed request."""

    kind: str = ""
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


TOO_LARGE = "ResourceVersionTooLarge"
"""Cause of a 504 for a version that the server has not reached: it lags, or etcd was restored from a backup."""
BUDGET = "DisruptionBudget"
"""Cause of a 429 for an eviction that a PodDisruptionBudget blocks."""

_USER = re.compile(r'User "(?P<user>[^"]+)" cannot ')
_LONGEST = 600


def from_response(status: int, body: bytes, request: ApiRequest, *, retry_after: str | None = None) -> ApiError:
    """Build the error for a response with this HTTP status; ``retry_after`` is the header (whole seconds)."""
    return from_status(_status(body), status, request, retry_after=retry_after)


def from_status(
    error_status: ApiStatus, status: int, request: ApiRequest, *, retry_after: str | None = None
) -> ApiError:
    """Build the error for an ``ApiStatus`` from a response body or from an ERROR event of a watch."""
    code = error_status.code or status
    message = " ".join((error_status.message or "").split())[:_LONGEST]
    reason = error_status.reason or ""
    causes = (error_status.details.causes if error_status.details else None) or ()
    wait = _seconds(retry_after)
    if wait is None and error_status.details is not None:
        wait = error_status.details.retry_after_seconds
    if any(c.reason == TOO_LARGE for c in causes) or message.startswith("Too large resource version"):
        reason = TOO_LARGE
    if any(c.reason == BUDGET for c in causes):
        reason = BUDGET
    kind, brief, next_step = _classify(code, reason, message, request)
    details = tuple(_cause(c) for c in causes if c.message and c.message not in message)
    if message and message not in brief:
        details = (f"message of the API server: {message}", *details)
    return kind(brief, details=details, next_step=next_step, status=code, reason=reason, retry_after_s=wait)


def unavailable_error(request: ApiRequest, server: str, reason: str, *, broken: bool = False) -> ApiUnavailableError:
    """Build the error for a request that got no response from ``server``."""
    return (ConnectionBrokenError if broken else ApiUnavailableError)(
        f"the API server {server} did not answer ({request}): {reason}", next_step=f"kubectl --server={server} version"
    )


def _classify(code: int, reason: str, message: str, request: ApiRequest) -> tuple[type[ApiError], str, str | None]:
    """Return the class, the message and the next step."""
    get_command = f"kubectl get {request.resource}" + (f" -n {request.namespace}" if request.namespace else "")
    if code == 404:
        return NotFoundError, *_not_found(message, reason, request, get_command)
    if code == 409:
        return (
            ConflictError,
            message if reason else f"conflict: {request}",
            f"{get_command} {request.name} -o yaml".replace("  ", " "),
        )
    if code == 410 or reason == "Expired":
        return GoneError, f"the API server no longer has the requested resource version ({request})", None
    if code == 401:
        return UnauthorizedError, f"the API server rejected the credentials ({request})", "kubectl auth whoami"
    if code == 403:
        return ForbiddenError, *_forbidden(message, request)
    if code == 429 and reason == BUDGET:
        brief = f"pod {request.namespace}/{request.name} cannot be evicted now: {message}"
        return ThrottledError, brief, f"kubectl get pdb -n {request.namespace}"
    if code == 500 and request.subresource == "eviction" and "PodDisruptionBudget" in message:
        # More than one budget matches, which the server does not support: it is healthy, and waiting does not help.
        brief = f"pod {request.namespace}/{request.name} cannot be evicted: {message}"
        return ApiError, brief, f"kubectl get pdb -n {request.namespace}"
    if code == 429:
        return ThrottledError, f"the API server throttles requests ({request})", "kubectl get --raw /readyz?verbose"
    if code >= 500:
        return (
            ApiUnavailableError,
            f"the API server failed with {code} ({request})",
            "kubectl get --raw /readyz?verbose",
        )
    return ApiError, f"the API server refused to {request}: {message or code}", None


def _cause(cause: StatusCause) -> str:
    return f"{cause.field}: {cause.message}" if cause.field else cause.message or ""


def _not_found(message: str, reason: str, request: ApiRequest, get_command: str) -> tuple[str, str]:
    if "could not find the requested resource" in message or "page not found" in message:
        return f"this cluster does not serve {request.resource} in the requested version", "kubectl api-resources"
    return message if reason else f"not found: {request}", get_command


def _forbidden(message: str, request: ApiRequest) -> tuple[str, str | None]:
    found = _USER.search(message)
    if found is None:
        return f"the cluster forbids {request}: {message}", None
    user = found["user"]
    return f'user "{user}" lacks permission to {request}', request.can_i_command(user)


def _status(body: bytes) -> ApiStatus:
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiStatus(message=body[:_LONGEST].decode(errors="replace"))


def _seconds(header: str | None) -> float | None:
    """Parse ``Retry-After`` in seconds; None for a date, which API servers do not send."""
    try:
        value = float(header or "")
    except ValueError:
        return None
    return value if 0 <= value < 86400 else None
