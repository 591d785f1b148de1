"""What the API server asks an admission webhook, and the answer: ``admission.k8s.io/v1`` as values.

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
    """One write that somebody wants to do. ``object`` is what it would leave, ``old_object`` what is there."""

    uid: str
    resource: AdmissionResource = AdmissionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NOTHING
    old_object: msgspec.Raw = _NOTHING
    dry_run: bool = False

    @property
    def user(self) -> str:
        return self.user_info.username

    def new(self, kind: type[T]) -> T | None:
        """What the write would leave; None for a deletion. Raises ApiError for what is not of this kind."""
        return None if bytes(self.object) == b"null" else decode(self.object, kind)

    def old(self, kind: type[T]) -> T | None:
        """What is there now; None for a creation. Raises ApiError for what is not of this kind."""
        return None if bytes(self.old_object) == b"null" else decode(self.old_object, kind)

    def raw(self) -> JSON:
        """What the write would leave with everything in it; empty for a deletion."""
        found: JSON | None = msgspec.json.decode(self.object)
        return found or {}


class _Review(ApiStruct, frozen=True):
    request: AdmissionRequest
    kind: str = ""


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """``reasons`` are sentences, each naming what is wrong and what to do; with any the write is refused. ``warnings``
    are shown to who writes (``kubectl`` prints them). ``patches`` are JSON Patch operations.
    """

    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    patches: tuple[JSON, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.reasons

    @property
    def message(self) -> str:
        return "; ".join(self.reasons)


def decode_review(body: bytes) -> AdmissionRequest:
    """The question in an AdmissionReview. Raises msgspec.DecodeError for what is none."""
    return msgspec.json.decode(body, type=_Review).request


def review_response(request: AdmissionRequest, verdict: AdmissionVerdict) -> JSON:
    """The AdmissionReview that says so."""
    response: JSON = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if verdict.patches and verdict.allowed:
        text = base64.b64encode(msgspec.json.encode(verdict.patches)).decode()
        response |= {"patchType": "JSONPatch", "patch": text}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
