"""Server-side tables: what ``kubectl get`` prints. Columns of built-in kinds are as recorded, cells are built here."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from support.standin.jsonpath import find
from support.standin.kinds import Column, Kind

JSON = dict[str, Any]
Cells = Callable[[JSON], dict[str, Any]]
NONE, UNKNOWN = "<none>", "<unknown>"
_FALLBACK = (Column("Name", "string", "name"), Column("Created At", "date"))


def table(kind: Kind, rows: list[JSON], meta: JSON, *, objects: str = "Metadata") -> JSON:
    """Build a ``Table`` of these rows. ``objects`` is what each row carries: ``None``, ``Metadata`` or ``Object``."""
    columns = kind.columns or _FALLBACK
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(kind, columns, row, objects) for row in rows],
    }


def _definition(column: Column) -> JSON:
    named = {"name": column.name, "type": column.type, "format": column.format, "description": column.description}
    return {**named, "priority": column.priority}


def _row(kind: Kind, columns: tuple[Column, ...], value: JSON, objects: str) -> JSON:
    make = _CELLS.get(kind.bucket)
    made = make(value) if make else {}
    row: JSON = {"cells": [_cell(column, made, value) for column in columns]}
    if objects == "Object":
        row["object"] = value
    else:
        row["object"] = None if objects == "None" else metadata_only(value)
    return row


def metadata_only(value: JSON) -> JSON:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]}


def _cell(column: Column, made: dict[str, Any], value: JSON) -> Any:
    if column.name in made:
        return made[column.name]
    if column.path:
        return _custom_cell(column, value)
    meta = value["metadata"]
    if column.name == "Name":
        return meta["name"]
    if column.name == "Age":
        return age(meta.get("creationTimestamp"))
    return meta.get("creationTimestamp") if column.name == "Created At" else NONE


def _custom_cell(column: Column, value: JSON) -> Any:
    found = find(value, column.path)
    if not found:
        return None
    if column.type == "date":
        return age(found[0])
    if len(found) == 1 and column.type in ("integer", "number", "boolean"):
        return found[0]
    return ",".join(_text(one) for one in found) if len(found) > 1 else _text(found[0])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def age(text: str | None) -> str:
    """Return an age as kubectl prints it, such as ``5d3h``."""
    if not text:
        return UNKNOWN
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(text.replace("Z", "+00:00"))).total_seconds())
    return duration(max(seconds, 0))


def duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years, rest = days // 365, days % 365
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


def _node(value: JSON) -> dict[str, Any]:
    status, info = value["status"], value["status"].get("nodeInfo", {})
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), None)
    text = {"True": "Ready", None: "Unknown"}.get(ready, "NotReady")
    if value["spec"].get("unschedulable"):
        text += ",SchedulingDisabled"
    addresses = {row["type"]: row["address"] for row in reversed(status.get("addresses") or [])}
    return {
        "Status": text,
        "Roles": _roles(value["metadata"].get("labels") or {}),
        "Version": info.get("kubeletVersion", ""),
        "Internal-IP": addresses.get("InternalIP", NONE),
        "External-IP": addresses.get("ExternalIP", NONE),
        "OS-Image": info.get("osImage") or UNKNOWN,
        "Kernel-Version": info.get("kernelVersion") or UNKNOWN,
        "Container-Runtime": info.get("containerRuntimeVersion") or UNKNOWN,
    }


def _roles(labels: dict[str, str]) -> str:
    prefix = "node-role.kubernetes.io/"
    found = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    found |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    return ",".join(sorted(found)) or NONE


def _pod(value: JSON) -> dict[str, Any]:
    spec, status = value["spec"], value["status"]
    rows = status.get("containerStatuses") or []
    reason = status.get("reason") or status.get("phase", "")
    for row in rows:
        state = row.get("state") or {}
        reason = state.get("waiting", {}).get("reason") or state.get("terminated", {}).get("reason") or reason
    if "deletionTimestamp" in value["metadata"]:
        reason = "Terminating"
    ready = sum(1 for row in rows if row.get("ready") and "running" in (row.get("state") or {}))
    addresses = status.get("podIPs") or [{"ip": status.get("podIP", "")}]
    return {
        "Ready": f"{ready}/{len(spec['containers'])}",
        "Status": reason,
        "Restarts": str(sum(row.get("restartCount", 0) for row in rows)),
        "IP": addresses[0]["ip"] or NONE,
        "Node": spec.get("nodeName") or NONE,
        "Nominated Node": status.get("nominatedNodeName") or NONE,
        "Readiness Gates": NONE,
    }


def _daemon_set(value: JSON) -> dict[str, Any]:
    spec, status = value["spec"], value["status"]
    containers = spec["template"]["spec"].get("containers") or []
    selector = spec["template"]["spec"].get("nodeSelector") or {}
    return {
        "Desired": status.get("desiredNumberScheduled", 0),
        "Current": status.get("currentNumberScheduled", 0),
        "Ready": status.get("numberReady", 0),
        "Up-to-date": status.get("updatedNumberScheduled", 0),
        "Available": status.get("numberAvailable", 0),
        "Node Selector": ",".join(f"{k}={v}" for k, v in sorted(selector.items())) or NONE,
        "Containers": ",".join(c["name"] for c in containers),
        "Images": ",".join(c["image"] for c in containers),
        "Selector": ",".join(f"{k}={v}" for k, v in sorted((spec["selector"].get("matchLabels") or {}).items())),
    }


def _source(source: JSON) -> str:
    return ", ".join(source[key] for key in ("component", "host") if source.get(key))


def _reporter(value: JSON) -> str:
    return ", ".join(value[key] for key in ("reportingComponent", "reportingInstance") if value.get(key))


def _event(value: JSON) -> dict[str, Any]:
    about = value.get("involvedObject", {})
    source = value.get("source", {})
    seen = value.get("lastTimestamp") or (value.get("series") or {}).get("lastObservedTime") or value.get("eventTime")
    return {
        "Last Seen": age(seen),
        "Type": value.get("type", ""),
        "Reason": value.get("reason", ""),
        "Object": f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        "Subobject": about.get("fieldPath", ""),
        "Source": _source(source) if source.get("component") else _reporter(value),
        "Message": value.get("message", "").strip(),
        "First Seen": age(value.get("firstTimestamp") or value.get("eventTime")),
        "Count": value.get("count", 0) or 1,
    }


def _config_map(value: JSON) -> dict[str, Any]:
    return {"Data": len(value.get("data") or {}) + len(value.get("binaryData") or {})}


def _budget(value: JSON) -> dict[str, Any]:
    spec = value["spec"]
    return {
        "Min Available": str(spec.get("minAvailable", "N/A")),
        "Max Unavailable": str(spec.get("maxUnavailable", "N/A")),
        "Allowed Disruptions": value["status"].get("disruptionsAllowed", 0),
    }


_CELLS: dict[str, Cells] = {
    "nodes.": _node,
    "pods.": _pod,
    "daemonsets.apps": _daemon_set,
    "events": _event,
    "configmaps.": _config_map,
    "secrets.": lambda value: {"Type": value.get("type", ""), "Data": len(value.get("data") or {})},
    "serviceaccounts.": lambda value: {"Secrets": len(value.get("secrets") or [])},
    "namespaces.": lambda value: {"Status": value["status"].get("phase", "")},
    "poddisruptionbudgets.policy": _budget,
    "leases.coordination.k8s.io": lambda value: {"Holder": value["spec"].get("holderIdentity", "")},
    "customresourcedefinitions.apiextensions.k8s.io": lambda v: {"Created At": v["metadata"]["creationTimestamp"]},
}
