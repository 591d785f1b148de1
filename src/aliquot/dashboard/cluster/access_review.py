"""Users and their permissions: TokenReview and SubjectAccessReview, cached for a short time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import msgspec

from aliquot.errors import AliquotError, PermissionDeniedError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.client.errors import ApiError, ForbiddenError
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.session import ApiTarget

TOKEN_REVIEW = ResourceType("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEW = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
CACHE_S = 30.0
"""How long a result is cached. A revoked token is valid for this time at most."""
_MOST = 4096


class AccessRight(msgspec.Struct, frozen=True):
    """A permission in RBAC terms. ``namespace`` is "" for the whole cluster."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{where}"


class ClusterUser(msgspec.Struct, frozen=True):
    """A user from a TokenReview. ``extra`` is passed to access reviews, because authorization webhooks may use it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: ClusterUser = ClusterUser()
    audiences: tuple[str, ...] = ()
    error: str = ""


class _Token(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Access(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class AccessReviews:
    """Cached reviews. Tokens must be for one of ``audiences``; empty means the API server's own audience.

    Only digests of tokens are stored.
    """

    def __init__(self, api: Api, audiences: tuple[str, ...] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._audiences = audiences
        self._clock = clock
        self._users: dict[bytes, tuple[float, ClusterUser | None]] = {}
        self._allowed: dict[tuple[bytes, AccessRight], tuple[float, bool]] = {}

    async def user(self, token: str) -> ClusterUser | None:
        """Return the user of a token, None if it is invalid. Raises AliquotError if it cannot be checked now."""
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        cached = self._users.get(key)
        if cached is not None and self._clock() - cached[0] < CACHE_S:
            return cached[1]
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            return None
        spec: dict[str, Any] = {"token": token} | ({"audiences": list(self._audiences)} if self._audiences else {})
        found = (await self._request(TOKEN_REVIEW, spec, _Token)).status
        audience_matches = not self._audiences or bool(set(self._audiences) & set(found.audiences))
        user = found.user if found.authenticated and audience_matches and found.user.username else None
        self._store(self._users, key, user)
        return user

    async def allowed(self, user: ClusterUser, right: AccessRight) -> bool:
        """Report whether a user has a permission. Raises AliquotError if it cannot be checked now."""
        key = msgspec.json.encode(user, order="sorted"), right
        cached = self._allowed.get(key)
        if cached is not None and self._clock() - cached[0] < CACHE_S:
            return cached[1]
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        attributes |= {"namespace": right.namespace} if right.namespace else {}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
            "resourceAttributes": attributes,
        }
        answer = bool((await self._request(ACCESS_REVIEW, spec, _Access)).status.allowed)
        self._store(self._allowed, key, answer)
        return answer

    async def own(self, right: AccessRight) -> bool:
        """Report whether the dashboard's own credentials have a permission. Raises AliquotError if that fails."""
        key = b"", right
        cached = self._allowed.get(key)
        if cached is not None and self._clock() - cached[0] < CACHE_S:
            return cached[1]
        name = f"{right.resource}.{right.group}" if right.group else right.resource
        try:
            answer = await self._api.can_i(right.verb, name, right.namespace or None)
        except ApiError as error:
            raise _permission_error(error) from error
        self._store(self._allowed, key, answer)
        return answer

    async def _request(self, kind: ResourceType, spec: dict[str, Any], answer: type[Any]) -> Any:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        try:
            return decode(await self._api.session.send("create", ApiTarget(kind), body=body), answer)
        except ApiError as error:
            raise _permission_error(error) from error

    def _store(self, cache: dict[Any, Any], key: Any, value: Any) -> None:
        if len(cache) >= _MOST:
            cache.clear()
        cache[key] = self._clock(), value


def _permission_error(error: ApiError) -> AliquotError:
    if not isinstance(error, ForbiddenError):
        return error
    return PermissionDeniedError(
        f"the dashboard may not review tokens and permissions in the cluster: {error.brief}",
        next_step="kubectl apply -f deploy/kubernetes/optional/dashboard.yaml",
    )
