"""Request bodies in protobuf, for the few kinds that ``kubectl`` writes so; answers are always JSON.

A body is ``k8s\\0`` and a ``runtime.Unknown`` message around the object's own message. The numbers are those of the
published ``generated.proto`` files of Kubernetes' API (https://github.com/kubernetes/api, .../apimachinery).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from support.standin.answers import unsupported_media

JSON = dict[str, Any]
MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_ACCEPTED = "application/json, application/yaml"

Table = dict[int, tuple[str, str]]
"""Field number to name and type: a scalar, a message's name, ``[]`` for lists, ``{}`` for maps of text."""

_MESSAGES: dict[str, Table] = {
    "ObjectMeta": {
        1: ("name", "text"), 2: ("generateName", "text"), 3: ("namespace", "text"), 4: ("selfLink", "text"),
        5: ("uid", "text"), 6: ("resourceVersion", "text"), 7: ("generation", "skip"),
        8: ("creationTimestamp", "skip"), 11: ("labels", "{}"),
        12: ("annotations", "{}"), 14: ("finalizers", "[]text"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "skip"), 3: ("status", "skip")},
    "ServiceAccount": {1: ("metadata", "ObjectMeta"), 4: ("automountServiceAccountToken", "bool")},
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"), 2: ("data", "{}"), 3: ("binaryData", "{bytes}"), 4: ("immutable", "bool"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"), 2: ("data", "{bytes}"), 3: ("type", "text"), 4: ("stringData", "{}"),
        5: ("immutable", "bool"),
    },
    "PolicyRule": {
        1: ("verbs", "[]text"), 2: ("apiGroups", "[]text"), 3: ("resources", "[]text"),
        4: ("resourceNames", "[]text"), 5: ("nonResourceURLs", "[]text"),
    },
    "Role": {1: ("metadata", "ObjectMeta"), 2: ("rules", "[]PolicyRule")},
    "ClusterRole": {1: ("metadata", "ObjectMeta"), 2: ("rules", "[]PolicyRule")},
    "Subject": {1: ("kind", "text"), 2: ("apiGroup", "text"), 3: ("name", "text"), 4: ("namespace", "text")},
    "RoleRef": {1: ("apiGroup", "text"), 2: ("kind", "text"), 3: ("name", "text")},
    "RoleBinding": {1: ("metadata", "ObjectMeta"), 2: ("subjects", "[]Subject"), 3: ("roleRef", "RoleRef")},
    "ClusterRoleBinding": {1: ("metadata", "ObjectMeta"), 2: ("subjects", "[]Subject"), 3: ("roleRef", "RoleRef")},
    "LabelSelectorRequirement": {1: ("key", "text"), 2: ("operator", "text"), 3: ("values", "[]text")},
    "LabelSelector": {1: ("matchLabels", "{}"), 2: ("matchExpressions", "[]LabelSelectorRequirement")},
    "IntOrString": {1: ("type", "int"), 2: ("intVal", "int"), 3: ("strVal", "text")},
    "PodDisruptionBudgetSpec": {
        1: ("minAvailable", "IntOrString"), 2: ("selector", "LabelSelector"), 3: ("maxUnavailable", "IntOrString"),
        4: ("unhealthyPodEvictionPolicy", "text"),
    },
    "PodDisruptionBudget": {
        1: ("metadata", "ObjectMeta"), 2: ("spec", "PodDisruptionBudgetSpec"), 3: ("status", "skip"),
    },
    "Preconditions": {1: ("uid", "text"), 2: ("resourceVersion", "text")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int"), 2: ("preconditions", "Preconditions"), 3: ("orphanDependents", "bool"),
        4: ("propagationPolicy", "text"), 5: ("dryRun", "[]text"),
    },
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "ResourceAttributes": {
        1: ("namespace", "text"), 2: ("verb", "text"), 3: ("group", "text"), 4: ("version", "text"),
        5: ("resource", "text"), 6: ("subresource", "text"), 7: ("name", "text"),
    },
    "NonResourceAttributes": {1: ("path", "text"), 2: ("verb", "text")},
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"), 2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "SelfSubjectAccessReview": {
        1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectAccessReviewSpec"), 3: ("status", "skip"),
    },
    "SelfSubjectRulesReviewSpec": {1: ("namespace", "text")},
    "SelfSubjectRulesReview": {
        1: ("metadata", "ObjectMeta"), 2: ("spec", "SelfSubjectRulesReviewSpec"), 3: ("status", "skip"),
    },
    "SelfSubjectReview": {1: ("metadata", "ObjectMeta"), 2: ("status", "skip")},
    "BoundObjectReference": {1: ("kind", "text"), 2: ("apiVersion", "text"), 3: ("name", "text"), 4: ("uid", "text")},
    "TokenRequestSpec": {
        1: ("audiences", "[]text"), 3: ("boundObjectRef", "BoundObjectReference"), 4: ("expirationSeconds", "int"),
    },
    "TokenRequest": {1: ("metadata", "ObjectMeta"), 2: ("spec", "TokenRequestSpec"), 3: ("status", "skip")},
}  # fmt: skip


def decode(body: bytes) -> JSON:
    """Return the object as in JSON, or {} for an empty body.

    Raises:
        RefusalError: 415, another kind, or a field that is not in the tables
    """
    if not body:
        return {}
    if not body.startswith(_MAGIC):
        raise unsupported_media(_ACCEPTED)
    unknown = dict(_fields(body[len(_MAGIC) :]))
    head = {number: bytes(value).decode() for number, value in _fields(unknown.get(1, b""))}
    kind = head.get(2, "")
    if kind not in _MESSAGES:
        raise unsupported_media(f"{_ACCEPTED} (the stand-in reads no {kind} in protobuf)")
    return {**_message(kind, unknown.get(2, b"")), "kind": kind, "apiVersion": head.get(1, "")}


def _message(name: str, data: bytes) -> JSON:
    found: JSON = {}
    for number, value in _fields(data):
        if number not in _MESSAGES[name]:
            raise unsupported_media(f"{_ACCEPTED} (the stand-in knows no field {number} of {name})")
        field, kind = _MESSAGES[name][number]
        if kind.startswith("[]"):
            found.setdefault(field, []).append(_value(kind[2:], value))
        elif kind.startswith("{"):
            found.setdefault(field, {}).update(_entry(value, as_bytes=kind == "{bytes}"))
        elif kind != "skip":
            found[field] = _value(kind, value)
    return _tidy(found)


def _tidy(found: JSON) -> JSON:
    """Remove empty texts, which Kubernetes writes for missing values."""
    return {key: value for key, value in found.items() if value != ""}


def _value(kind: str, value: Any) -> Any:
    if kind == "text":
        return value.decode()
    if kind == "bool":
        return bool(value)
    if kind == "int":
        return value
    found = _message(kind, value)
    if kind == "IntOrString":
        return found["strVal"] if found.get("type") else found.get("intVal", 0)
    return found


def _entry(data: bytes, *, as_bytes: bool) -> JSON:
    row = dict(_fields(data))
    value = row.get(2, b"")
    return {row.get(1, b"").decode(): base64.b64encode(value).decode() if as_bytes else value.decode()}


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Return field number and raw value: an integer, or the bytes of text, bytes or a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            yield number, data[at : at + length]
            at += length
        else:
            raise unsupported_media(f"{_ACCEPTED} (the stand-in reads no protobuf wire type {wire})")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        result |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return result, at
