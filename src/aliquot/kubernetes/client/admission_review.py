"""Requests and responses of admission webhooks (``admission.k8s.io/v1``).

Source: Kubernetes documentation, "Dynamic Admission Control" (request and response).
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

import msgspec

from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject

JSON = dict[str, Any]
T = TypeVar("T", bound=KubeObject)
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
_NOTHING = msgspec.Raw(b"null")


class AdmissionResource(ApiStruct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(ApiStruct, frozen=True):
    username: str = ""


class AdmissionRequest(ApiStruct, frozen=True):
    """A write that the API server asks a webhook to admit."""

    uid: str
    resource: AdmissionResource = AdmissionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NOTHING
    """The object after the write; null for a deletion."""
    old_object: msgspec.Raw = _NOTHING
    """The stored object; null for a creation."""
    dry_run: bool = False

    @property
    def user(self) -> str:
        return self.user_info.username

    def new(self, kind: type[T]) -> T | None:
        """Decode the object after the write; None for a deletion. Raises ApiError if it is not of this kind."""
        return None if bytes(self.object) == b"null" else decode(self.object, kind)

    def old(self, kind: type[T]) -> T | None:
        """Decode the stored object; None for a creation. Raises ApiError if it is not of this kind."""
        return None if bytes(self.old_object) == b"null" else decode(self.old_object, kind)

    def raw(self) -> JSON:
        """Decode the object after the write with all its fields; empty for a deletion."""
        found: JSON | None = msgspec.json.decode(self.object)
        return found or {}


class _Review(ApiStruct, frozen=True):
    request: AdmissionRequest
    kind: str = ""


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """The decision of a webhook about a write."""

    reasons: tuple[str, ...] = ()
    """Why the write is refused: sentences that name the problem and the fix. Empty if it is allowed."""
    warnings: tuple[str, ...] = ()
    """Warnings for the client; ``kubectl`` prints them."""
    patches: tuple[JSON, ...] = ()
    """JSON Patch operations."""

    @property
    def allowed(self) -> bool:
        return not self.reasons

    @property
    def message(self) -> str:
        return "; ".join(self.reasons)


def decode_review(body: bytes) -> AdmissionRequest:
    """Decode the request of an AdmissionReview. Raises msgspec.DecodeError if the body is not an AdmissionReview."""
    return msgspec.json.decode(body, type=_Review).request


def review_response(request: AdmissionRequest, verdict: AdmissionVerdict) -> JSON:
    """Build the AdmissionReview that answers the request."""
    response: JSON = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if verdict.patches and verdict.allowed:
        text = base64.b64encode(msgspec.json.encode(verdict.patches)).decode()
        response |= {"patchType": "JSONPatch", "patch": text}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
