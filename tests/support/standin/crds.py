"""Custom resource definitions: their rules, the kinds that they define, and the rules of their objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from support.standin import structural
from support.standin.answers import Cause
from support.standin.kinds import Column, Kind, Subresource
from support.standin.metadata import label_name_faults, subdomain_faults
from support.standin.schema import META, Decoder, reduced, stamp
from support.standin.store import Store

JSON = dict[str, Any]
BUCKET = "customresourcedefinitions.apiextensions.k8s.io"
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_AGE = Column("Age", "date", path=".metadata.creationTimestamp")


def fill(value: JSON) -> None:
    names = value["spec"].get("names") or {}
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    value["spec"].setdefault("conversion", {"strategy": "None"})


def accept(value: JSON) -> None:
    """Accept a new definition, which is served at once. The real server takes a moment."""
    now = stamp(datetime.now(UTC))
    stored = [v["name"] for v in value["spec"].get("versions") or [] if v.get("storage")]
    value["status"] = {
        "conditions": [
            _condition("NamesAccepted", now, "NoConflicts", "no conflicts found"),
            _condition("Established", now, "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": dict(value["spec"].get("names") or {}),
        "storedVersions": stored,
    }


def _condition(name: str, now: str, reason: str, message: str) -> JSON:
    return {"type": name, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


def check(new: JSON, old: JSON | None) -> list[Cause]:
    spec = new["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    found: list[Cause] = []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    if new["metadata"].get("name") != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        found.append(Cause.invalid("metadata.name", new["metadata"].get("name"), why))
    found += _check_names(spec, names)
    if not versions:
        found.append(Cause.required("spec.versions", "must have at least one version"))
    if sum(1 for v in versions if v.get("storage")) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(Cause.invalid("spec.versions", versions, why))
    for n, version in enumerate(versions):
        found += _check_version(version, f"spec.versions[{n}]")
    if old is not None:
        for name in ("group", "scope"):
            if old["spec"].get(name) != spec.get(name):
                found.append(Cause.invalid(f"spec.{name}", spec.get(name), "field is immutable"))
    return found


def _check_names(spec: JSON, names: JSON) -> list[Cause]:
    found: list[Cause] = []
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        if not spec.get("scope"):
            found.append(Cause.required("spec.scope"))
        else:
            found.append(Cause.unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    group = spec.get("group", "")
    if not group:
        found.append(Cause.required("spec.group"))
    else:
        found += [Cause.invalid("spec.group", group, why) for why in subdomain_faults(group)]
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            found.append(Cause.required(f"spec.names.{name}"))
        else:
            why = label_name_faults(names[name].lower())
            found += [Cause.invalid(f"spec.names.{name}", names[name], text) for text in why]
    return found


def _check_version(version: JSON, field: str) -> list[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return [Cause.required(f"{field}.schema.openAPIV3Schema")]
    return structural.faults(schema, f"{field}.schema.openAPIV3Schema")


def kinds(store: Store) -> list[Kind]:
    """Return the kinds that the stored definitions define."""
    return [
        _kind(definition, version)
        for definition in store.items(BUCKET)
        for version in definition["spec"]["versions"]
        if version.get("served")
    ]


def _kind(definition: JSON, version: JSON) -> Kind:
    spec, names = definition["spec"], definition["spec"]["names"]
    columns = [
        Column(c["name"], c["type"], c.get("format", ""), c.get("priority", 0), c["jsonPath"], c.get("description", ""))
        for c in version.get("additionalPrinterColumns") or []
    ]
    subresources = {}
    if "status" in (version.get("subresources") or {}):
        subresources["status"] = Subresource(names["kind"], ("get", "patch", "update"))
    return Kind(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names["singular"],
        namespaced=spec["scope"] == "Namespaced",
        verbs=_VERBS,
        short=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=subresources,
        columns=(Column("Name", "string", "name"), *(columns or [_AGE])),
        custom=version,
    )


def schema_of(kind: Kind) -> JSON:
    found: JSON = ((kind.custom or {}).get("schema") or {}).get("openAPIV3Schema") or {}
    return found


def decode(kind: Kind, body: JSON, decoder: Decoder) -> JSON:
    """Return the object without fields that its schema does not know, with the schema's defaults."""
    meta = decoder.read(META, body.get("metadata") or {}, "metadata")
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    pruned: JSON = structural.pruned(reduced(schema_of(kind)), rest, "", decoder.unknown)
    structural.default(reduced(schema_of(kind)), pruned)
    return {**pruned, "metadata": meta}


def validator(kind: Kind) -> Callable[[JSON, JSON | None], list[Cause]]:
    """Return the validation of an object against its schema."""

    def check_object(new: JSON, old: JSON | None) -> list[Cause]:
        return structural.causes(schema_of(kind), new, old)

    return check_object
