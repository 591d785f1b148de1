"""Reduced schemas, in one form for the recorded ones of built-in kinds and those of custom resources.

A node is a dict with ``type``, ``properties``, ``additionalProperties``, ``items``, or ``ref`` to a recorded
definition; ``list`` (atomic, set, map), ``keys``, ``map`` (atomic, granular), ``patch`` and ``merge_key`` say how lists
and maps are merged.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import Any

from support.standin.answers import RefusalError, bad_request
from support.standin.kinds import Kind, schemas
from support.standin.quantity import canonical

JSON = dict[str, Any]
ANY: JSON = {"type": "any"}
META = {"ref": "apis.meta.v1.ObjectMeta"}
_DROPPED_WHEN_ZERO = {
    "core.v1.NodeSpec": {"unschedulable"},
    "core.v1.PodSpec": {"hostNetwork", "hostPID", "hostIPC"},
    "core.v1.Container": {"stdin", "stdinOnce", "tty"},
    "core.v1.VolumeMount": {"readOnly"},
    "core.v1.Event": {"count"},
    "events.v1.Event": {"deprecatedCount"},
    "apps.v1.DaemonSetStatus": {"updatedNumberScheduled", "numberAvailable", "numberUnavailable", "observedGeneration"},
    "apps.v1.DaemonSetSpec": {"minReadySeconds"},
    "apis.meta.v1.ObjectMeta": {"generation"},
    "policy.v1.PodDisruptionBudgetStatus": {"observedGeneration"},
    "batch.v1.JobStatus": {"active", "succeeded", "failed"},
    "apis.meta.v1.Condition": {"observedGeneration"},
    "core.v1.ContainerStateTerminated": {"signal"},
}
"""Optional fields that are not pointers, where the real server omits false and 0. The schema does not show which."""

_NULL_WHEN_MISSING = {
    "core.v1.NodeCondition": ("lastHeartbeatTime", "lastTransitionTime"),
    "core.v1.PodCondition": ("lastProbeTime", "lastTransitionTime"),
    "core.v1.ContainerStateRunning": ("startedAt",),
    "core.v1.ContainerStateTerminated": ("startedAt", "finishedAt"),
    "core.v1.Event": ("firstTimestamp", "lastTimestamp", "eventTime"),
    "events.v1.Event": ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
    "apps.v1.DaemonSetCondition": ("lastTransitionTime",),
}
"""Times that are not pointers: written as null."""
_NULL_WHEN_EMPTY = {
    "core.v1.PodSpec": ("containers",),
    "rbac.v1.ClusterRole": ("rules",),
    "rbac.v1.Role": ("rules",),
}
"""Lists that are written as null if they are empty."""


def root(kind: Kind) -> JSON:
    """Return the schema of a kind's objects."""
    if kind.custom is None:
        return {"ref": kind.schema}
    own = reduced(kind.custom.get("schema", {}).get("openAPIV3Schema") or {})
    head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": META}
    return {**own, "type": "object", "properties": {**own.get("properties", {}), **head}}


def resolve(node: JSON) -> JSON:
    """Return the definition behind a reference, with its name as ``name``."""
    name = node.get("ref")
    return node if name is None else _recorded(name)


@cache
def _recorded(name: str) -> JSON:
    return {**schemas()[name], "name": name}


_KEPT = {
    "x-kubernetes-list-type": "list",
    "x-kubernetes-list-map-keys": "keys",
    "x-kubernetes-map-type": "map",
    "x-kubernetes-preserve-unknown-fields": "preserve",
    "x-kubernetes-int-or-string": "int_or_string",
    "x-kubernetes-embedded-resource": "embedded",
}
_SAME = ("type", "default", "nullable", "enum", "required")


def reduced(schema: JSON) -> JSON:
    """Return a custom resource's ``openAPIV3Schema`` in the form used here."""
    node: JSON = {key: schema[key] for key in _SAME if key in schema}
    node.update({new: schema[old] for old, new in _KEPT.items() if old in schema})
    if "properties" in schema:
        node["properties"] = {name: reduced(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            node[key] = reduced(schema[key])
    return node


def child(node: JSON, name: str) -> JSON:
    """Return the schema of a field or map entry, ``ANY`` if the schema states nothing."""
    found = resolve(node)
    properties: JSON = found.get("properties", {})
    entry: JSON = properties.get(name) or found.get("additionalProperties") or ANY
    return entry


def items(node: JSON) -> JSON:
    found: JSON = resolve(node).get("items") or ANY
    return found


def is_struct_field(node: JSON, name: str) -> bool:
    return name in resolve(node).get("properties", {})


_GO_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")


class Decoder:
    """A reader of built-in objects that decodes as the server's own types do. Unknown fields are dropped and counted,
    wrong types refused, empty optional fields omitted, quantities and times made canonical.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.unknown: list[str] = []

    def read(self, node: JSON, value: Any, path: str = "", owner: str = "") -> Any:
        """Return the canonical value.

        Raises:
            RefusalError: 400, a value of the wrong JSON type
        """
        found = resolve(node)
        name = found.get("name", "")
        if name == "api.resource.Quantity":
            return self._quantity(value, path)
        if name in ("apis.meta.v1.Time", "apis.meta.v1.MicroTime"):
            return self._time(value, path, owner, micro=name.endswith("MicroTime"))
        kind = found["type"]
        if kind == "any" or name.endswith(("FieldsV1", "RawExtension", ".JSON")):
            return value
        if isinstance(kind, list):
            return (
                value
                if isinstance(value, (str, int)) and not isinstance(value, bool)
                else self._wrong(value, path, name, owner)
            )
        return self._typed(found, kind, value, path, name, owner)

    def _typed(self, found: JSON, kind: str, value: Any, path: str, name: str, owner: str) -> Any:
        if kind == "object":
            if not isinstance(value, dict):
                self._wrong(value, path, name or _go_name(found), owner)
            return self._struct(found, value, path) if "properties" in found else self._map(found, value, path, owner)
        if kind == "array":
            if not isinstance(value, list):
                self._wrong(value, path, _go_name(found), owner)
            return [
                self.read(found["items"], one, f"{path}[{n}]", owner) for n, one in enumerate(value) if one is not None
            ]
        right = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}[kind]
        if not isinstance(value, right) or (kind == "integer" and isinstance(value, bool)):  # type: ignore[arg-type]
            self._wrong(value, path, found.get("format") or {"boolean": "bool"}.get(kind, kind), owner)
        return value

    def _map(self, found: JSON, value: JSON, path: str, owner: str) -> JSON:
        entry = found.get("additionalProperties")
        if entry is None:
            return value
        return {k: self.read(entry, v, path, owner) for k, v in value.items() if v is not None}

    def _struct(self, found: JSON, value: JSON, path: str) -> JSON:
        properties, result = found["properties"], {}
        for name, given in value.items():
            here = f"{path}.{name}" if path else name
            if name not in properties:
                self.unknown.append(here)
            elif given is not None:
                result[name] = self.read(properties[name], given, here, found.get("name", ""))
        for name in _NULL_WHEN_MISSING.get(found.get("name", ""), ()):
            result.setdefault(name, None)
        for name in _NULL_WHEN_EMPTY.get(found.get("name", ""), ()):
            result[name] = result.get(name) or None
        dropped = _DROPPED_WHEN_ZERO.get(found.get("name", ""), set())
        for name, node in properties.items():
            if name not in result and "default" in node:
                zero = node["default"]
                result[name] = self.read(node, zero, f"{path}.{name}" if path else name) if zero == {} else zero
            elif name in result and _empty(result[name], node, zero=name in dropped):
                del result[name]
        return result

    def _quantity(self, value: Any, path: str) -> str:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            self._wrong(value, path, "Quantity", "")
        text = canonical(str(value))
        if text is None:
            raise self.refuse(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        return text

    def _time(self, value: Any, path: str, owner: str, *, micro: bool) -> Any:
        if not isinstance(value, str):
            self._wrong(value, path, "string", owner)
        if not _TIME.match(value):
            layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
            raise self.refuse(f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"')
        moment = datetime.fromisoformat(value.replace("Z", "+00:00")).astimezone(UTC)
        return stamp(moment, micro=micro)

    def _wrong(self, value: Any, path: str, wanted: str, owner: str) -> Any:
        struct = owner.rpartition(".")[2] or self.kind.partition("/")[0]
        go, field = _go_type(wanted), re.sub(r"\[\d+\]", "", path)
        raise self.refuse(
            f"json: cannot unmarshal {_GO_NAMES.get(type(value), 'null')} into Go struct field "
            f"{struct}.{field} of type {go}"
        )

    def refuse(self, why: str) -> RefusalError:
        version = self.kind.partition("/")[2] or "v1"
        name = self.kind.partition("/")[0]
        return bad_request(f'{name} in version "{version}" cannot be handled as a {name}: {why}')


def _go_name(node: JSON) -> str:
    """Return a field's type as Go writes it."""
    found = resolve(node)
    if "name" in found:
        return _go_type(found["name"])
    if found["type"] == "array":
        return f"[]{_go_name(found['items'])}"
    if found["type"] == "object":
        return f"map[string]{_go_name(found.get('additionalProperties') or ANY)}"
    return {"boolean": "bool"}.get(str(found["type"]), str(found["type"]))


def _go_type(wanted: str) -> str:
    words = wanted.split(".")
    return ".".join(words[-2:]) if len(words) > 1 else wanted


def _empty(value: Any, node: JSON, *, zero: bool) -> bool:
    """Report whether the server omits this optional field. Free JSON, as in a definition's defaults, stays as it is."""
    if "default" in node or node.get("ref", "").endswith(".JSON"):
        return False
    if value == "" or value == []:
        return True
    if value == {} and "ref" not in node:
        return True
    return zero and (value is False or value == 0)


def stamp(moment: datetime, *, micro: bool = False) -> str:
    """Return a time as the API writes it: whole seconds, or microseconds for event and lease times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
