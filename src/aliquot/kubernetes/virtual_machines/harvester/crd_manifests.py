"""The CustomResourceDefinitions of Harvester's devices group, generated from the kinds so that fields cannot diverge.

They accept everything that Harvester writes, so that they can replace its definitions over live objects. They keep
unknown status fields, which a newer pcidevices may have written.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import HarvesterStatus
from aliquot.kubernetes.kinds.harvester_peripherals import ALL_KINDS
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.harvester.crd_descriptions import FIELD_DESCRIPTIONS
from aliquot.kubernetes.virtual_machines.harvester.crd_validation import (
    COLUMNS,
    FIELD_RULES,
    IMMUTABLE_FIELDS,
    KIND_DESCRIPTIONS,
    NAMED_OTHERWISE,
    POOL_PLACE,
)

JSON = dict[str, Any]


def definitions() -> list[JSON]:
    """Return the CustomResourceDefinitions as plain objects, in the order of ``ALL_KINDS``."""
    return [_definition(kind) for kind in ALL_KINDS]


def all_definitions() -> list[JSON]:
    """Return those of Harvester's kinds, and then those of our own group."""
    return [*definitions(), _definition(VGPUPool)]


def _definition(kind: type[KubeObject]) -> JSON:
    resource_type = kind.TYPE
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource_type), "labels": {"app.kubernetes.io/name": "aliquot"}},
        "spec": {
            "group": resource_type.group,
            "scope": "Namespaced" if resource_type.namespaced else "Cluster",
            "names": {
                "plural": resource_type.plural,
                "singular": resource_type.kind.lower(),
                "kind": resource_type.kind,
                "listKind": f"{resource_type.kind}List",
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: type[KubeObject]) -> JSON:
    columns = [{"name": name, "type": _column_type(kind, name), "jsonPath": path} for name, path in COLUMNS[kind]]
    return {
        "name": kind.TYPE.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }


def _column_type(kind: type[KubeObject], name: str) -> str:
    """Return the type of a column: always string for Harvester's kinds, as there."""
    return "integer" if kind is VGPUPool and name in ("Count", "Ready", "In Use") else "string"


def schema(kind: type[KubeObject]) -> JSON:
    """Return the OpenAPI v3 schema of a kind: wire names, types, limits, and immutability rules."""
    found = _struct(kind)
    found["description"] = KIND_DESCRIPTIONS[kind]
    text = {"type": "string"}
    found["properties"] = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}} | {
        name: each for name, each in found["properties"].items() if name != "metadata"
    }
    if kind is VGPUPool:
        found["required"] = ["spec"]
        found["properties"]["spec"] |= {"required": ["vGPUTypeName", "count"], "x-kubernetes-validations": [POOL_PLACE]}
        for name in ("vGPUTypeName", "count"):
            found["properties"]["spec"]["properties"][name].pop("default")
    if kind in IMMUTABLE_FIELDS:
        found["required"] = ["spec"]
        if kind not in NAMED_OTHERWISE:
            found["x-kubernetes-validations"] = [_name_rule(IMMUTABLE_FIELDS[kind][0])]
        _make_immutable(found["properties"]["spec"], IMMUTABLE_FIELDS[kind])
    return found


def _name_rule(address: str) -> JSON:
    """Return the rule for an object's name, which checks only new objects.

    An object that was misnamed before must still allow the removal of its finalizers.
    """
    plain = f"self.spec.{address}.replace(':', '').replace('.', '').replace('/', '-')"
    return {
        "rule": f"oldSelf.hasValue() || self.metadata.name == self.spec.nodeName + '-' + {plain}",
        "optionalOldSelf": True,
        "message": f"the name must be spec.nodeName, a hyphen, and spec.{address} without ':' and '.'",
    }


def _make_immutable(spec: JSON, immutable: tuple[str, ...]) -> None:
    """Make fields of a spec required and immutable."""
    why = "cannot change: it identifies the function; delete the object and create another one"
    spec["required"] = list(immutable)
    for name in immutable:
        spec["properties"][name].pop("default")
    spec["x-kubernetes-validations"] = [
        {"rule": f"self.{name} == oldSelf.{name}", "message": f"{name} {why}"} for name in immutable
    ]


def _struct(kind: type[msgspec.Struct]) -> JSON:
    known = {name: more for base in kind.__mro__ for name, more in FIELD_RULES.get(base, {}).items()}
    texts = {name: text for base in kind.__mro__ for name, text in FIELD_DESCRIPTIONS.get(base, {}).items()}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    if unknown := (known.keys() | texts.keys()) - fields.keys():
        raise LookupError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    found: JSON = {"type": "object"}
    properties = {
        name: _field(kind, field) | known.get(name, {}) | ({"description": texts[name]} if name in texts else {})
        for name, field in fields.items()
    }
    if properties:
        found["properties"] = properties
    if required := [name for name, field in fields.items() if field.required]:
        found["required"] = required
    if issubclass(kind, HarvesterStatus):
        found["x-kubernetes-preserve-unknown-fields"] = True
    return found


def _field(kind: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> JSON:
    found = _type(inspect.type_info(field.type))
    always_shown = not kind.__struct_config__.omit_defaults
    if always_shown and isinstance(field.default, str | bool | int):
        found["default"] = field.default
    return found


def _type(info: inspect.Type) -> JSON:
    match info:
        case inspect.StrType():
            return {"type": "string"}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType():
            return {"type": "integer", "format": "int64"}
        case inspect.DictType():
            return {"type": "object", "additionalProperties": _type(info.value_type)}
        case inspect.VarTupleType():
            return {"type": "array", "items": _type(info.item_type)}
        case inspect.UnionType():
            (only,) = [each for each in info.types if not isinstance(each, inspect.NoneType)]
            return _type(only)
        case inspect.StructType():
            return _struct(info.cls)
    raise LookupError(f"no schema for {info!r}")
