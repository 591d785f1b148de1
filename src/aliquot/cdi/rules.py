"""CDI's own rules, checked so that Aliquot writes no document that a runtime would refuse.

Source: SPEC.md, schema/ and the validation of cncf-tags/container-device-interface 1.1.0. Readers refuse a whole file
for one unknown field, and a file whose version is lower than its fields need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
_PART = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_HOOKS = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
_EDITS = {"env": list, "deviceNodes": list, "mounts": list, "hooks": list}
_NODE = {"path": str, "hostPath": str, "type": str, "major": int, "minor": int, "fileMode": int, "permissions": str}
_MOUNT = {"hostPath": str, "containerPath": str, "options": list}
_HOOK = {"hookName": str, "path": str, "args": list, "env": list, "timeout": int}


def lowest_version(document: Mapping[str, Any]) -> str:
    """Return the lowest version that has every field in use, among the fields that Aliquot writes."""
    edits = [document.get("containerEdits", {}), *(d.get("containerEdits", {}) for d in document["devices"])]
    if "annotations" in document or "." in str(document["kind"]).partition("/")[2]:
        return "0.6.0"
    if any(str(d["name"])[:1].isdigit() for d in document["devices"]):
        return "0.5.0"
    if any("hostPath" in n for e in edits for n in e.get("deviceNodes", ())):
        return "0.5.0"
    return "0.4.0" if any("type" in m for e in edits for m in e.get("mounts", ())) else "0.3.0"


def kind_errors(kind: str) -> tuple[str, ...]:
    """Return the errors in ``vendor/class``."""
    vendor, slash, name = kind.partition("/")
    errors = [f"{word!r} is not a CDI {part}" for part, word in (("vendor", vendor), ("class", name))
             if not _PART.fullmatch(word)]  # fmt: skip
    return tuple(errors) if slash else (f"{kind!r} is not vendor/class",)


def document_errors(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every reason why a runtime would refuse the document; empty if it is valid."""
    return tuple(_document_errors(document))


def _document_errors(document: Mapping[str, Any]) -> Iterator[str]:
    fields = {"cdiVersion": str, "kind": str, "devices": list, "containerEdits": dict}
    yield from _fields("the document", document, fields, ("cdiVersion", "kind", "devices"))
    yield from kind_errors(str(document.get("kind")))
    devices = document.get("devices") or []
    if not devices:
        yield "it has no devices"
    names = [str(d.get("name")) for d in devices]
    yield from (f"two devices are named {name}" for name in sorted({n for n in names if names.count(n) > 1}))
    for device in devices:
        where = f"device {device.get('name')}"
        yield from _fields(where, device, {"name": str, "containerEdits": dict}, ("name", "containerEdits"))
        if not _NAME.fullmatch(str(device.get("name"))):
            yield f"{where}: not a name that CDI allows"
        edits = device.get("containerEdits") or {}
        if not any(edits.values()):
            yield f"{where}: its containerEdits are empty"
        yield from _edits(where, edits)
    yield from _edits("every container", document.get("containerEdits") or {})
    version = document.get("cdiVersion")
    if version not in VERSIONS:
        yield f"{version!r} is not a version of CDI"
    elif devices and VERSIONS.index(version) < VERSIONS.index(lowest_version(document)):
        yield f"version {version} is too low: its fields need {lowest_version(document)}"


def _edits(where: str, edits: Mapping[str, Any]) -> Iterator[str]:
    yield from _fields(where, edits, _EDITS, ())
    for variable in edits.get("env", ()):
        if "=" not in variable[1:]:
            yield f"{where}: {variable!r} is not NAME=VALUE"
    for node in edits.get("deviceNodes", ()):
        yield from _fields(where, node, _NODE, ("path",))
        if node.get("type", "c") not in ("b", "c", "u", "p"):
            yield f"{where}: {node.get('path')} has the type {node['type']!r}"
        if str(node.get("permissions", "")).strip("rwm"):
            yield f"{where}: {node.get('path')} has the permissions {node['permissions']!r}"
    for mount in edits.get("mounts", ()):
        yield from _fields(where, mount, _MOUNT, ("hostPath", "containerPath"))
    for hook in edits.get("hooks", ()):
        yield from _fields(where, hook, _HOOK, ("hookName", "path"))
        if hook.get("hookName") not in _HOOKS:
            yield f"{where}: unknown hook {hook.get('hookName')!r}"


def _fields(where: str, given: Mapping[str, Any], known: Mapping[str, type], needed: tuple[str, ...]) -> Iterator[str]:
    for name in needed:
        if given.get(name) in (None, ""):
            yield f"{where}: {name} is missing"
    for name, value in given.items():
        if name not in known:
            yield f"{where}: unknown field {name}"
        elif not isinstance(value, known[name]):
            yield f"{where}: {name} has the type {type(value).__name__}"
