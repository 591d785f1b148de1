"""The CustomResourceDefinitions of Harvester's devices group, made from the kinds: fields cannot drift apart.

Everything that the original writes is accepted, so that its definitions can be replaced over live objects. Fields of a
status that are not known here are kept: a newer pcidevices may have written them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester import KINDS, HarvesterStatus
from aliquot.kubernetes.virtual_machines.harvester.crd_descriptions import FIELD_DESCRIPTIONS
from aliquot.kubernetes.virtual_machines.harvester.crd_validation import (
    COLUMNS,
    FIELD_RULES,
    IMMUTABLE_FIELDS,
    KIND_DESCRIPTIONS,
)

JSON = dict[str, Any]


def definitions() -> list[JSON]:
    """One CustomResourceDefinition per kind, as plain objects, in the order of ``kinds.harvester.KINDS``."""
    return [_definition(kind) for kind in KINDS]


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
    columns = [{"name": name, "type": "string", "jsonPath": path} for name, path in COLUMNS[kind]]
    return {
        "name": kind.TYPE.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }


def schema(kind: type[KubeObject]) -> JSON:
    """The OpenAPI v3 schema of a kind: names on the wire, types, limits, and the rules about what never changes."""
    found = _struct(kind)
    found["description"] = KIND_DESCRIPTIONS[kind]
    text = {"type": "string"}
    found["properties"] = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}} | {
        name: each for name, each in found["properties"].items() if name != "metadata"
    }
    if kind in IMMUTABLE_FIELDS:
        found["required"] = ["spec"]
        found["x-kubernetes-validations"] = [_name_rule(IMMUTABLE_FIELDS[kind][0])]
        _make_immutable(found["properties"]["spec"], IMMUTABLE_FIELDS[kind])
    return found


def _name_rule(address: str) -> JSON:
    """Asked of new objects alone: one that was misnamed before must still let its finalizers be taken off."""
    plain = f"self.spec.{address}.replace(':', '').replace('.', '')"
    return {
        "rule": f"oldSelf.hasValue() || self.metadata.name == self.spec.nodeName + '-' + {plain}",
        "optionalOldSelf": True,
        "message": f"the name must be spec.nodeName, a hyphen, and spec.{address} without ':' and '.'",
    }


def _make_immutable(spec: JSON, immutable: tuple[str, ...]) -> None:
    """Fields that must be there, and stay as they are."""
    why = "cannot change: it says which function this is about; delete the object and make another one"
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
