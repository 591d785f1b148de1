"""What can go wrong between us and the API server, each with a sentence and the next thing to type.

``from_response`` turns a refused request into one of these; a request without an answer is an ``ApiUnavailableError``.
Status bodies: the Kubernetes API conventions (``ApiStatus``: reason, message, details.causes,
details.retryAfterSeconds).
"""

from __future__ import annotations

import re
import shlex

import msgspec

from aliquot.errors import AliquotError


class ApiRequest(msgspec.Struct, frozen=True):
    """What was asked, in RBAC's words. ``resource`` is kubectl's name: ``nodes``, ``leases.coordination.k8s.io``."""

    verb: str
    resource: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = self.resource + (f"/{self.subresource}" if self.subresource else "")
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{name}" + (f" in namespace {self.namespace}" if self.namespace else "")

    def can_i_command(self, user: str = "") -> str:
        """The command that asks the cluster whether ``user`` may do this."""
        words = ["kubectl", "auth", "can-i", self.verb, self.resource + (f"/{self.name}" if self.name else "")]
        words += [f"--subresource={self.subresource}"] if self.subresource else []
        words += ["-n", self.namespace] if self.namespace else []
        return shlex.join(words + ([f"--as={user}"] if user else []))


class ApiError(AliquotError):
    """The API server refused. ``status`` is HTTP's, 0 where no answer came; ``reason`` the server's own word for it, or
    its cause's (``TOO_LARGE``, ``BUDGET``); ``retry_after_s`` how long it asks us to wait.
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


class NotFoundError(ApiError):
    """No such object, or no such kind in this cluster."""

    code = "KUBERNETES_NOT_FOUND"


class ConflictError(ApiError):
    """The object changed since it was read, or (``reason`` AlreadyExists) is there already."""

    code = "KUBERNETES_CONFLICT"


class UnauthorizedError(ApiError):
    """The credentials are missing, wrong or expired, or the plugin that makes them failed."""

    code = "KUBERNETES_UNAUTHORIZED"


class ForbiddenError(ApiError):
    """RBAC or an admission check says no."""

    code = "KUBERNETES_FORBIDDEN"


class ThrottledError(ApiError):
    """Too many requests, or an eviction that a PodDisruptionBudget holds back."""

    code = "KUBERNETES_THROTTLED"


class GoneError(ApiError):
    """The resource version is older than what the server still remembers."""

    code = "KUBERNETES_GONE"


class ApiUnavailableError(ApiError):
    """No answer: nobody listens, the connection broke, it took too long, or the server itself is failing (5xx)."""

    code = "KUBERNETES_AWAY"


class ConnectionBrokenError(ApiUnavailableError):
    """The connection was there and broke before the answer: a connection that idled too long, or a server that ended.
    What was asked may have been done.
    """


class StatusCause(msgspec.Struct, frozen=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """Kubernetes' answer to a request that failed."""

    kind: str = ""
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


TOO_LARGE = "ResourceVersionTooLarge"
"""The cause of a 504 for a version that the server has not reached: it lags, or its store went back to a backup."""
BUDGET = "DisruptionBudget"
"""The cause of a 429 for an eviction that a PodDisruptionBudget holds back."""

_USER = re.compile(r'User "(?P<user>[^"]+)" cannot ')
_LONGEST = 600


def from_response(status: int, body: bytes, request: ApiRequest, *, retry_after: str | None = None) -> ApiError:
    """The error for an answer with this HTTP status; ``retry_after`` is the header (whole seconds)."""
    return from_status(_status(body), status, request, retry_after=retry_after)


def from_status(
    error_status: ApiStatus, status: int, request: ApiRequest, *, retry_after: str | None = None
) -> ApiError:
    """The error for a ``ApiStatus``, which comes as an answer's body or as an event inside a watch."""
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
        details = (f"the API server said: {message}", *details)
    return kind(brief, details=details, next_step=next_step, status=code, reason=reason, retry_after_s=wait)


def unavailable_error(request: ApiRequest, server: str, reason: str, *, broken: bool = False) -> ApiUnavailableError:
    """The error for a request that got no answer from ``server``."""
    return (ConnectionBrokenError if broken else ApiUnavailableError)(
        f"the API server {server} did not answer ({request}): {reason}", next_step=f"kubectl --server={server} version"
    )


def _classify(code: int, reason: str, message: str, request: ApiRequest) -> tuple[type[ApiError], str, str | None]:
    """Class, sentence and next step."""
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
        return GoneError, f"the API server no longer knows the version that was asked for ({request})", None
    if code == 401:
        return UnauthorizedError, f"the API server does not accept our credentials ({request})", "kubectl auth whoami"
    if code == 403:
        return ForbiddenError, *_forbidden(message, request)
    if code == 429 and reason == BUDGET:
        brief = f"pod {request.namespace}/{request.name} may not be evicted now: {message}"
        return ThrottledError, brief, f"kubectl get pdb -n {request.namespace}"
    if code == 500 and request.subresource == "eviction" and "PodDisruptionBudget" in message:
        # More than one budget matches, which the server refuses to weigh: it is well, and waiting does not help.
        brief = f"pod {request.namespace}/{request.name} cannot be evicted: {message}"
        return ApiError, brief, f"kubectl get pdb -n {request.namespace}"
    if code == 429:
        return ThrottledError, f"the API server asks us to slow down ({request})", "kubectl get --raw /readyz?verbose"
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
        return f"this cluster has no {request.resource} in the version that was asked for", "kubectl api-resources"
    return message if reason else f"not found: {request}", get_command


def _forbidden(message: str, request: ApiRequest) -> tuple[str, str | None]:
    found = _USER.search(message)
    if found is None:
        return f"the cluster forbids to {request}: {message}", None
    user = found["user"]
    return f'user "{user}" lacks the right to {request}', request.can_i_command(user)


def _status(body: bytes) -> ApiStatus:
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiStatus(message=body[:_LONGEST].decode(errors="replace"))


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` in seconds; a date (which API servers do not send) is not followed."""
    try:
        value = float(header or "")
    except ValueError:
        return None
    return value if 0 <= value < 86400 else None
