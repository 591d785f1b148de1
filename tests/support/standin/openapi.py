"""The OpenAPI documents that ``kubectl`` reads: they state that the server validates fields, and how lists merge."""

from __future__ import annotations

from typing import Any

from support.standin.kinds import Kind, Kinds, schemas

JSON = dict[str, Any]
_FULL = {
    "list": "x-kubernetes-list-type",
    "keys": "x-kubernetes-list-map-keys",
    "map": "x-kubernetes-map-type",
    "patch": "x-kubernetes-patch-strategy",
    "merge_key": "x-kubernetes-patch-merge-key",
}
_SAME = ("type", "format", "default", "required", "enum")


def index(kinds: Kinds) -> JSON:
    """Return ``/openapi/v3``: a document for each version."""
    paths = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(kinds, group, version)}"}
    return {"paths": paths}


def _hash(kinds: Kinds, group: str, version: str) -> str:
    """Return a hash that changes with the document: clients use it as the cache key."""
    found = [k for k in kinds.all() if (k.group, k.version) == (group, version)]
    return format(hash(repr([(k.plural, k.custom) for k in found])) & 0xFFFFFFFFFFFF, "X")


def document(kinds: Kinds, group: str, version: str) -> JSON | None:
    """Return one version's paths and schemas, or None if the version does not exist."""
    found = [k for k in kinds.all() if (k.group, k.version) == (group, version)]
    if not found:
        return None
    paths: JSON = {}
    components: JSON = {}
    for kind in found:
        paths[_path(kind)] = {"patch": _operation(kind)}
        if kind.custom is None:
            _collect(kind.schema, components)
            components[kind.schema]["x-kubernetes-group-version-kind"] = [_gvk(kind)]
        else:
            own = dict(kind.custom.get("schema", {}).get("openAPIV3Schema") or {"type": "object"})
            own["x-kubernetes-group-version-kind"] = [_gvk(kind)]
            components[f"{kind.group}.{kind.version}.{kind.kind}"] = own
    info = {"title": "Kubernetes", "version": "v1.36.2"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": components}}


def _path(kind: Kind) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return (
        f"{root}/namespaces/{{namespace}}/{kind.plural}/{{name}}"
        if kind.namespaced
        else f"{root}/{kind.plural}/{{name}}"
    )


def _operation(kind: Kind) -> JSON:
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    return {"parameters": parameters, "x-kubernetes-group-version-kind": _gvk(kind), "x-kubernetes-action": "patch"}


def _gvk(kind: Kind) -> JSON:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _collect(name: str, components: JSON) -> None:
    """Collect a recorded definition and all that it reaches, as published."""
    if name in components:
        return
    components[name] = {}  # one that reaches itself, as the schema of a custom resource does, is written once
    components[name] = _written(schemas()[name], components)


def _written(node: JSON, components: JSON) -> JSON:
    if "ref" in node:
        _collect(node["ref"], components)
        reference = {"$ref": f"#/components/schemas/{node['ref']}"}
        extra = {_FULL[key]: node[key] for key in _FULL if key in node}
        if not extra and "default" not in node:
            return reference
        return {"allOf": [reference], **extra, **({"default": node["default"]} if "default" in node else {})}
    result: JSON = {key: node[key] for key in _SAME if key in node and not isinstance(node[key], type(None))}
    if isinstance(result.get("type"), list):
        result["oneOf"] = [{"type": one} for one in result.pop("type")]
    if result.get("type") == "any":
        result.pop("type")
    result.update({_FULL[key]: node[key] for key in _FULL if key in node})
    if "properties" in node:
        result["properties"] = {name: _written(child, components) for name, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            result[key] = _written(node[key], components)
    return result
