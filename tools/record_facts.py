"""The facts of the stand-in API server about the built-in kinds, read from a running kube-apiserver.

``kinds.json`` (names, verbs, subresources, table columns) comes from discovery, ``schemas.json`` (field names and
types, list and merge keys; no descriptions) from the published OpenAPI. Used by ``tools/record_apiserver.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

JSON = dict[str, Any]
Get = Callable[[str, str], JSON]
"""Read a path with this media type."""

KINDS = {
    "api/v1": (
        "configmaps endpoints events namespaces nodes persistentvolumeclaims pods replicationcontrollers secrets "
        "serviceaccounts services"
    ),
    "apis/admissionregistration.k8s.io/v1": (
        "mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings "
        "validatingwebhookconfigurations"
    ),
    "apis/apiextensions.k8s.io/v1": "customresourcedefinitions",
    "apis/apps/v1": "controllerrevisions daemonsets deployments replicasets statefulsets",
    "apis/authentication.k8s.io/v1": "selfsubjectreviews tokenreviews",
    "apis/authorization.k8s.io/v1": (
        "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews"
    ),
    "apis/batch/v1": "cronjobs jobs",
    "apis/coordination.k8s.io/v1": "leases",
    "apis/events.k8s.io/v1": "events",
    "apis/networking.k8s.io/v1": "networkpolicies",
    "apis/policy/v1": "poddisruptionbudgets",
    "apis/rbac.authorization.k8s.io/v1": "clusterrolebindings clusterroles rolebindings roles",
    "apis/resource.k8s.io/v1": "deviceclasses resourceclaims resourceclaimtemplates resourceslices",
    "apis/scheduling.k8s.io/v1": "priorityclasses",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
KEPT = {
    "required": "required",
    "enum": "enum",
    "default": "default",
    "format": "format",
    "x-kubernetes-list-type": "list",
    "x-kubernetes-list-map-keys": "keys",
    "x-kubernetes-map-type": "map",
    "x-kubernetes-patch-strategy": "patch",
    "x-kubernetes-patch-merge-key": "merge_key",
}


def kinds(get: Get) -> list[JSON]:
    """Return a row per built-in kind of ``KINDS``, subresources inside."""
    return [row for path, names in KINDS.items() for row in _group(get, path, set(names.split()))]


def _group(get: Get, path: str, wanted: set[str]) -> Iterator[JSON]:
    found = get(f"/{path}", "application/json")
    group, _, version = found["groupVersion"].rpartition("/")
    schemas = get(f"/openapi/v3/{path}", "application/json")["components"]["schemas"]
    by_name = {row["name"]: row for row in found["resources"]}
    for name in sorted(wanted):
        row = by_name[name]
        subresources = {
            sub.partition("/")[2]: {k: other[k] for k in ("kind", "group", "version", "verbs") if k in other}
            for sub, other in by_name.items()
            if sub.startswith(f"{name}/")
        }
        yield {
            "group": group,
            "version": version,
            "kind": row["kind"],
            "plural": name,
            "singular": row["singularName"],
            "namespaced": row["namespaced"],
            "short": row.get("shortNames", []),
            "categories": row.get("categories", []),
            "verbs": row["verbs"],
            "subresources": subresources,
            "schema": _schema_of(schemas, group, version, row["kind"]),
            "columns": _columns(get, path, name) if "list" in row["verbs"] else [],
        }


def _schema_of(schemas: JSON, group: str, version: str, kind: str) -> str:
    wanted = {"group": group, "version": version, "kind": kind}
    return next(short(n) for n, s in schemas.items() if wanted in s.get("x-kubernetes-group-version-kind", []))


def _columns(get: Get, path: str, plural: str) -> list[JSON]:
    table = get(f"/{path}/{plural}?limit=1", TABLE)
    return [{k: c[k] for k in ("name", "type", "format", "priority")} for c in table["columnDefinitions"]]


def schemas(get: Get, rows: list[JSON]) -> JSON:
    """Return every definition that the kinds reach, by its short name."""
    published: JSON = {}
    for path in KINDS:
        published.update(get(f"/openapi/v3/{path}", "application/json")["components"]["schemas"])
    by_short = {short(name): schema for name, schema in published.items()}
    found: JSON = {}
    open_names = [row["schema"] for row in rows]
    while open_names:
        name = open_names.pop()
        if name not in found:
            found[name] = reduced(by_short[name])
            open_names += _references(found[name])
    return dict(sorted(found.items()))


def short(name: str) -> str:
    """Return ``io.k8s.api.core.v1.NodeSpec`` as ``core.v1.NodeSpec``."""
    return name.removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.").removeprefix("io.k8s.")


def reduced(schema: JSON) -> JSON:
    """Return a schema without prose, references as ``ref``."""
    result: JSON = {new: schema[old] for old, new in KEPT.items() if old in schema}
    references = [schema, *schema.get("allOf", [])]
    reference = next((r["$ref"] for r in references if "$ref" in r), None)
    if reference:
        result["ref"] = short(reference.rpartition("/")[2])
    else:
        result["type"] = schema.get("type", "any")
    if "oneOf" in schema:
        result["type"] = sorted(option["type"] for option in schema["oneOf"])
    if "properties" in schema:
        result["properties"] = {k: reduced(v) for k, v in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = reduced(schema[key])
    return result


def _references(schema: JSON) -> Iterator[str]:
    if "ref" in schema:
        yield schema["ref"]
    for child in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if child is not None:
            yield from _references(child)
