"""Client of the API server: takes kinds, returns frozen structs, and raises an ApiError for every failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from aliquot.kubernetes.client.codec import ObjectList, T, decode, decode_list
from aliquot.kubernetes.client.errors import ApiRequest, GoneError
from aliquot.kubernetes.client.kubeconfig import find_access
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.client.server_version import ServerVersion
from aliquot.kubernetes.client.session import TIMEOUT_S, ApiSession, ApiTarget, Hook
from aliquot.kubernetes.client.transport import HttpCall, Transport

ALL_NAMESPACES = "*"
FIELD_MANAGER = "aliquot"
PAGE_SIZE = 500
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_OWN_REVIEW = ResourceType(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
_REVIEW = ResourceType("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
Selector = str | Mapping[str, str]
"""A selector in kubectl's syntax (``a=b,c!=d``), or a mapping of values that must be equal."""


class ObjectSelection(msgspec.Struct, frozen=True):
    """A selection of objects of one kind."""

    namespace: str | None = None
    """None is the whole cluster."""
    name: str | None = None
    """Sent as a field selector."""
    labels: Selector | None = None
    fields: Selector | None = None

    def params(self) -> dict[str, str]:
        named = f"metadata.name={self.name}" if self.name else ""
        fields = ",".join(filter(None, (named, _selector(self.fields))))
        pairs = {"labelSelector": _selector(self.labels), "fieldSelector": fields}
        return {key: value for key, value in pairs.items() if value}


class Api:
    """A connection to an API server.

    A call takes at most ``session.timeout_s`` seconds per try. If the server asks for a retry later (429, or 5xx with
    Retry-After), it takes up to ``session.patience_s`` seconds more. Calls raise ApiError and its subclasses. If a
    write ends in ApiUnavailableError, the API server may or may not have done it.
    """

    def __init__(self, session: ApiSession, namespace: str) -> None:
        self.session = session
        self._namespace = namespace

    @classmethod
    def connect(
        cls,
        kubeconfig: str | None = None,
        *,
        namespace: str | None = None,
        timeout_s: float = TIMEOUT_S,
        on_request: Hook | None = None,
    ) -> Api:
        """Create a client without sending a request.

        The server comes from the given file, else the pod's service account, else KUBECONFIG or ``~/.kube/config``.
        Raises ConfigError and NoClusterError.
        """
        access = find_access(kubeconfig)
        session = ApiSession(Transport(access), timeout_s=timeout_s, on_request=on_request)
        return cls(session, namespace or access.namespace)

    def counting(self, on_request: Hook) -> Api:
        """Return a client over the same connections whose requests are counted separately."""
        session = self.session
        own = ApiSession(
            session.transport, timeout_s=session.timeout_s, patience_s=session.patience_s, on_request=on_request
        )
        return Api(own, self._namespace)

    @property
    def namespace(self) -> str:
        """The namespace of calls that do not give one."""
        return self._namespace

    @property
    def server(self) -> str:
        return self.session.transport.server

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """Number of requests so far, by verb and resource."""
        return self.session.requests

    async def aclose(self) -> None:
        await self.session.transport.aclose()

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """Get an object. Raises NotFoundError if it does not exist."""
        return decode(await self.session.send("get", self._target(kind.TYPE, name, namespace)), kind)

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
    ) -> tuple[T, ...]:
        """List all selected objects, page by page. ``namespace`` "*" is every namespace."""
        return (await self.snapshot(kind, self.selection(kind, namespace, labels=labels, fields=fields))).items

    async def create(self, kind: type[T], body: Mapping[str, Any], namespace: str | None = None) -> T:
        """Create an object; ``body`` may omit ``apiVersion`` and ``kind``. Raises ConflictError if it exists."""
        target = ApiTarget(kind.TYPE, None, self._resolve_namespace(kind.TYPE, namespace))
        params = {"fieldManager": FIELD_MANAGER}
        return decode(await self.session.send("create", target, body=_body(kind.TYPE, body), params=params), kind)

    async def patch(
        self,
        kind: type[T],
        name: str,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str | None = None,
        style: Literal["merge", "json", "apply"] = "merge",
        subresource: str | None = None,
    ) -> T:
        """Patch an object.

        Raises ConflictError for a merge patch with ``metadata.resourceVersion`` if the object has changed since.
        ``apply`` is server-side apply as field manager ``aliquot``; it takes ownership of fields from other managers.
        """
        target = self._target(kind.TYPE, name, namespace, subresource)
        params = {"fieldManager": FIELD_MANAGER}
        if style == "apply":
            params["force"] = "true"
            body = _body(kind.TYPE, body) if isinstance(body, Mapping) else body
        answer = await self.session.send("patch", target, body=body, params=params, content_type=_PATCH_TYPES[style])
        return decode(answer, kind)

    async def delete(
        self,
        kind: type[T],
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object. Raises NotFoundError if it does not exist.

        Returns when the server accepts the deletion; the object may exist until its grace period ends. With ``uid``,
        deletes only the object with that uid, and raises ConflictError for another.
        """
        await self.session.send("delete", self._target(kind.TYPE, name, namespace), body=_delete_options(grace_s, uid))

    async def evict(
        self, name: str, namespace: str | None = None, *, grace_s: int | None = None, uid: str | None = None
    ) -> None:
        """Evict a pod if its PodDisruptionBudgets allow it.

        Raises ThrottledError with the budget's message at once if a budget blocks the eviction; the caller decides
        whether to wait. Raises NotFoundError if the pod is gone.
        """
        target = self._target(Pod.TYPE, name, namespace, "eviction")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": target.namespace},
            "deleteOptions": _delete_options(grace_s, uid),
        }
        await self.session.send("create", target, body=body)

    async def can_i(self, verb: str, resource: str, namespace: str | None = None, name: str | None = None) -> bool:
        """Report whether RBAC allows a request.

        ``resource`` is kubectl's name, for example ``nodes``, ``pods/eviction`` or ``leases.coordination.k8s.io``.
        ``namespace`` None is the whole cluster.
        """
        return await self._review(_OWN_REVIEW, {}, _attributes(verb, resource, namespace, name))

    async def can_account(
        self, account: tuple[str, str], verb: str, resource: str, namespace: str | None = None
    ) -> bool:
        """Report whether RBAC allows a request of a service account, given by its namespace and name.

        Raises ForbiddenError if the user of this client may not ask for others.
        """
        own, name = account
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
        subject = {"user": f"system:serviceaccount:{own}:{name}", "groups": groups}
        return await self._review(_REVIEW, subject, _attributes(verb, resource, namespace))

    async def _review(self, kind: ResourceType, subject: Mapping[str, Any], attributes: Mapping[str, str]) -> bool:
        body = _body(kind, {"spec": {**subject, "resourceAttributes": attributes}})
        answer = await self.session.send("create", ApiTarget(kind), body=body)
        return decode(answer, _Review).status.allowed

    async def version(self) -> ServerVersion:
        """Return the version of the API server. Raises ForbiddenError if it does not name it to this user."""
        call = HttpCall(ApiRequest("get", "/version"), "GET", "/version")
        return decode(await self.session.send_with_retries(call), ServerVersion)

    def selection(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        name: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
    ) -> ObjectSelection:
        """Build the selection for a list or watch of this kind. ``namespace`` None is the client's own."""
        return ObjectSelection(self._resolve_namespace(kind.TYPE, namespace), name, labels, fields)

    async def snapshot(self, kind: type[T], selection: ObjectSelection, version: str | None = None) -> ObjectList[T]:
        """List all selected objects, with the resource version of the list.

        ``version`` None reads from etcd, and "0" from the server's cache at any version. Any other value requires a
        list that is not older. Raises GoneError, or ApiUnavailableError with reason ResourceVersionTooLarge, if the
        server cannot provide that. If a page expires half-way, the whole list is read again in one request.
        """
        target = ApiTarget(kind.TYPE, None, selection.namespace)
        params = selection.params()
        if version is not None:
            full = params | {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
            return decode_list(await self.session.send("list", target, params=full), kind)
        try:
            return await self._pages(kind, target, params)
        except GoneError:
            return decode_list(await self.session.send("list", target, params=params), kind)

    async def _pages(self, kind: type[T], target: ApiTarget, params: dict[str, str]) -> ObjectList[T]:
        items: list[T] = []
        continue_token = ""
        while True:
            paged = params | {"limit": str(PAGE_SIZE)} | ({"continue": continue_token} if continue_token else {})
            part = decode_list(await self.session.send("list", target, params=paged), kind)
            items += part.items
            continue_token = part.metadata.continue_token
            if not continue_token:
                return ObjectList(part.metadata, tuple(items))

    def _target(
        self, type_: ResourceType, name: str, namespace: str | None, subresource: str | None = None
    ) -> ApiTarget:
        if not name or "/" in name or name in (".", ".."):
            raise ValueError(f"{name!r} is not a valid name for {type_}")
        return ApiTarget(type_, name, self._resolve_namespace(type_, namespace), subresource)

    def _resolve_namespace(self, type_: ResourceType, namespace: str | None) -> str | None:
        if not type_.namespaced or namespace == ALL_NAMESPACES:
            return None
        return namespace or self._namespace


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


def _attributes(verb: str, resource: str, namespace: str | None, name: str | None = None) -> dict[str, str]:
    plain, _, subresource = resource.partition("/")
    plural, _, group = plain.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    return attributes | {"namespace": namespace or "", "name": name or ""}


def _body(type_: ResourceType, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": type_.api_version, "kind": type_.kind, **body}


def _delete_options(grace_s: int | None, uid: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return options


def _selector(selector: Selector | None) -> str:
    return (
        selector or ""
        if selector is None or isinstance(selector, str)
        else ",".join(f"{k}={v}" for k, v in selector.items())
    )
