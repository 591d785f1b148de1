"""Rules of every object's metadata, with the server's own messages."""

from __future__ import annotations

import re
from typing import Any

from support.standin.answers import Cause
from support.standin.kinds import Kind

JSON = dict[str, Any]

_SUBDOMAIN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"

NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
NOT_LABEL_NAME = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_NAME}')"
)
_NOT_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOT_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NOT_QUALIFIED = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_ANNOTATION_BYTES = 256 * 1024
_LABEL_NAMED = ("namespaces", "services")
_PATH_NAMED = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


def subdomain_faults(name: str) -> list[str]:
    """Return why a name is not an RFC 1123 subdomain, or nothing if it is one."""
    faults = ["must be no more than 253 characters"] if len(name) > 253 else []
    return faults if re.fullmatch(_SUBDOMAIN, name) else [*faults, NOT_SUBDOMAIN]


def label_name_faults(name: str) -> list[str]:
    faults = ["must be no more than 63 bytes"] if len(name) > 63 else []
    if "." in name:
        return [*faults, "must not contain dots"]
    return faults if re.fullmatch(_LABEL_NAME, name) else [*faults, NOT_LABEL_NAME]


def _path_faults(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{c}'" for c in "/%" if c in name]


def qualified_faults(key: str) -> list[str]:
    """Return why a text is not a label key (``prefix/name`` or ``name``)."""
    parts = key.split("/")
    if len(parts) > 2:
        return [_NOT_QUALIFIED]
    faults = []
    if len(parts) == 2:
        prefix = parts[0]
        faults += (
            [f"prefix part {why}" for why in subdomain_faults(prefix)] if prefix else ["prefix part must be non-empty"]
        )
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    return faults if re.fullmatch(_QUALIFIED, name) else [*faults, _NOT_NAME_PART]


def value_faults(value: str) -> list[str]:
    """Return why a text is not a label value."""
    faults = ["must be no more than 63 bytes"] if len(value.encode()) > 63 else []
    return faults if re.fullmatch(_VALUE, value) else [*faults, _NOT_VALUE]


def label_causes(labels: dict[str, str], field: str = "metadata.labels") -> list[Cause]:
    found: list[Cause] = []
    for key in labels:
        found += [Cause.invalid(field, key, why) for why in qualified_faults(key)]
        found += [Cause.invalid(field, labels[key], why) for why in value_faults(labels[key])]
    return found


def name_faults(kind: Kind, name: str) -> list[str]:
    if kind.plural in _PATH_NAMED and kind.group == "rbac.authorization.k8s.io":
        return _path_faults(name)
    return label_name_faults(name) if kind.plural in _LABEL_NAMED and not kind.group else subdomain_faults(name)


def causes(kind: Kind, value: JSON) -> list[Cause]:
    """Return all errors of an object's metadata."""
    meta = value["metadata"]
    found: list[Cause] = []
    if not meta.get("name"):
        found.append(Cause.required("metadata.name", "name or generateName is required"))
    else:
        found += [Cause.invalid("metadata.name", meta["name"], why) for why in name_faults(kind, meta["name"])]
    found += label_causes(meta.get("labels") or {})
    found += _annotation_causes(meta.get("annotations") or {})
    for n, finalizer in enumerate(meta.get("finalizers") or ()):
        found += [Cause.invalid("metadata.finalizers", finalizer, why) for why in qualified_faults(finalizer)]
        if "/" not in finalizer and finalizer not in ("foregroundDeletion", "orphan", "kubernetes"):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(Cause.invalid(f"metadata.finalizers[{n}]", finalizer, why))
    return found + _owner_causes(meta.get("ownerReferences") or [])


def _annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    field, found = "metadata.annotations", []
    for key in annotations:
        found += [Cause.invalid(field, key, why) for why in qualified_faults(key.lower())]
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > _ANNOTATION_BYTES:
        found.append(Cause.too_long(field, _ANNOTATION_BYTES))
    return found


def _owner_causes(owners: list[JSON]) -> list[Cause]:
    found, field = [], "metadata.ownerReferences"
    for owner in owners:
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                why = "version must not be empty" if name == "apiVersion" else "must not be empty"
                found.append(Cause.invalid(f"{field}.{name}", owner.get(name, ""), why))
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        found.append(Cause.invalid(field, owners, "Only one reference can have Controller set to true"))
    return found
