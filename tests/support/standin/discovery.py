"""Discovery: the documents that ``kubectl`` reads first."""

from __future__ import annotations

from typing import Any

from support.standin.kinds import Kind, Kinds

JSON = dict[str, Any]
VERSION = {
    "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
}  # fmt: skip
"""The version from which the answers are recorded."""


def core_versions(address: str) -> JSON:
    rows = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": rows}


def groups(kinds: Kinds) -> JSON:
    rows = [group(name, versions) for name, versions in sorted(kinds.groups().items()) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def group(name: str, versions: list[str]) -> JSON:
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def one_group(kinds: Kinds, name: str) -> JSON | None:
    versions = kinds.groups().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **group(name, versions)} if versions else None


def resources(kinds: Kinds, group: str, version: str) -> JSON | None:
    """Return the resources of one version, or None if the version does not exist."""
    found = [kind for kind in kinds.all() if (kind.group, kind.version) == (group, version)]
    if not found:
        return None
    rows: list[JSON] = []
    for kind in sorted(found, key=lambda k: k.plural):
        rows.append(_row(kind))
        for name, sub in sorted(kind.subresources.items()):
            row: JSON = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
            if sub.group:
                row["group"] = sub.group
            if sub.version:
                row["version"] = sub.version
            rows.append({**row, "kind": sub.kind, "verbs": list(sub.verbs)})
    api_version = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList", "groupVersion": api_version, "resources": rows}
    return {**head, "apiVersion": "v1"} if group else head


def _row(kind: Kind) -> JSON:
    row: JSON = {"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind}
    row["verbs"] = list(kind.verbs)
    if kind.short:
        row["shortNames"] = list(kind.short)
    if kind.categories:
        row["categories"] = list(kind.categories)
    return row
