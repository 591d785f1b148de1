"""The API server, as the rest of the program sees it: kinds in, frozen structs out, a sentence for every failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from aliquot.kubernetes.client.codec import ObjectList, T, decode, decode_list
from aliquot.kubernetes.client.errors import GoneError
from aliquot.kubernetes.client.kubeconfig import find_access
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.client.session import TIMEOUT_S, ApiSession, ApiTarget, Hook
from aliquot.kubernetes.client.transport import Transport

ALL_NAMESPACES = "*"
FIELD_MANAGER = "aliquot"
PAGE_SIZE = 500
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_ACCESS_REVIEW = ResourceType(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
Selector = str | Mapping[str, str]
"""As kubectl takes it (``a=b,c!=d``), or a mapping of what must be equal."""


class ObjectSelection(msgspec.Struct, frozen=True):
    """Which objects of a kind. ``namespace`` None is the whole cluster; a ``name`` becomes a field selector."""

    namespace: str | None = None
    name: str | None = None
    labels: Selector | None = None
    fields: Selector | None = None

    def params(self) -> dict[str, str]:
        named = f"metadata.name={self.name}" if self.name else ""
        fields = ",".join(filter(None, (named, _selector(self.fields))))
        pairs = {"labelSelector": _selector(self.labels), "fieldSelector": fields}
        return {key: value for key, value in pairs.items() if value}


class Api:
    """One connection to one API server. A call takes at most ``session.timeout_s`` per try and
    ``session.patience_s`` more where the server asks to come back later (429, or 5xx with Retry-After). Raises
    ApiError and its children. Of a call that changes something and ends in ApiUnavailableError nobody knows whether it
    was done.
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
        """Where the API server is comes from the file, else the pod's service account, else KUBECONFIG or
        ``~/.kube/config``. Nothing is sent yet. Raises ConfigError, NoClusterError.
        """
        access = find_access(kubeconfig)
        session = ApiSession(Transport(access), timeout_s=timeout_s, on_request=on_request)
        return cls(session, namespace or access.namespace)

    @property
    def namespace(self) -> str:
        """The namespace of calls that name none."""
        return self._namespace

    @property
    def server(self) -> str:
        return self.session.transport.server

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """Requests so far, by verb and resource."""
        return self.session.requests

    async def aclose(self) -> None:
        await self.session.transport.aclose()

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        """Raises NotFoundError."""
        return decode(await self.session.send("get", self._target(kind.TYPE, name, namespace)), kind)

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
    ) -> tuple[T, ...]:
        """All of them, read page by page. ``namespace`` "*" is every namespace."""
        return (await self.snapshot(kind, self.selection(kind, namespace, labels=labels, fields=fields))).items

    async def create(self, kind: type[T], body: Mapping[str, Any], namespace: str | None = None) -> T:
        """``apiVersion`` and ``kind`` may be left out. Raises ConflictError if it is there already."""
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
        """A merge patch with ``metadata.resourceVersion`` is refused (ConflictError) if the object has changed since.
        ``apply`` is server-side apply as field manager ``aliquot``; it takes fields over from others.
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
        """Returns when the deletion is accepted; the object may live on for its grace period. With ``uid`` only that
        very object is deleted (else ConflictError). Raises NotFoundError.
        """
        await self.session.send("delete", self._target(kind.TYPE, name, namespace), body=_delete_options(grace_s, uid))

    async def evict(
        self, name: str, namespace: str | None = None, *, grace_s: int | None = None, uid: str | None = None
    ) -> None:
        """Ask for a pod to go, as PodDisruptionBudgets allow. Raises ThrottledError with the budget's message when one
        holds the pod back (at once: waiting is the caller's choice), NotFoundError when it is gone.
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
        """Whether RBAC lets us. ``resource`` is kubectl's name: ``nodes``, ``pods/eviction``,
        ``leases.coordination.k8s.io``. ``namespace`` None is the whole cluster.
        """
        plain, _, subresource = resource.partition("/")
        plural, _, group = plain.partition(".")
        attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
        attributes |= {"namespace": namespace or "", "name": name or ""}
        body = _body(_ACCESS_REVIEW, {"spec": {"resourceAttributes": attributes}})
        answer = await self.session.send("create", ApiTarget(_ACCESS_REVIEW), body=body)
        return decode(answer, _Review).status.allowed

    def selection(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        name: str | None = None,
        labels: Selector | None = None,
        fields: Selector | None = None,
    ) -> ObjectSelection:
        """The selection that a list or watch of this kind means: ``namespace`` None is the client's own."""
        return ObjectSelection(self._resolve_namespace(kind.TYPE, namespace), name, labels, fields)

    async def snapshot(self, kind: type[T], selection: ObjectSelection, version: str | None = None) -> ObjectList[T]:
        """All selected objects and the version at which they are so. ``version`` None asks the store itself; "0" takes
        whatever the server has at hand; any other means not older than that (GoneError, or ApiUnavailableError with
        reason ResourceVersionTooLarge, where the server cannot know). Pages that expire half-way are read again in one
        go.
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
            raise ValueError(f"{name!r} cannot be the name of one of {type_}")
        return ApiTarget(type_, name, self._resolve_namespace(type_, namespace), subresource)

    def _resolve_namespace(self, type_: ResourceType, namespace: str | None) -> str | None:
        if not type_.namespaced or namespace == ALL_NAMESPACES:
            return None
        return namespace or self._namespace


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


def _body(type_: ResourceType, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": type_.api_version, "kind": type_.kind, **body}


def _delete_options(grace_s: int | None, uid: str | None) -> dict[str, Any]:
    """DeleteOptions."""
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
