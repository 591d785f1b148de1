"""Rules of nodes."""

from __future__ import annotations

from typing import Any

from support.standin.answers import Cause
from support.standin.metadata import qualified_faults
from support.standin.quantity import amount

JSON = dict[str, Any]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_PROTECTED = Cause.forbidden("spec", "node updates may only change labels, taints, or capacity")


def fill(value: JSON) -> None:
    """Fill in allocatable from the capacity unless it is given."""
    status = value["status"]
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = dict(status["capacity"])


def check(new: JSON, old: JSON | None) -> list[Cause]:
    found = taint_causes(new["spec"].get("taints") or [])
    for field in ("capacity", "allocatable"):
        found += quantity_causes(new["status"].get(field) or {}, f"status.{field}")
    if old is not None:
        for name in ("providerID", "podCIDR"):
            before, after = old["spec"].get(name), new["spec"].get(name)
            if before and before != after:
                found.append(_PROTECTED)
        if old["spec"].get("externalID") != new["spec"].get("externalID"):
            found.append(_PROTECTED)  # nothing fills this one in later
    return found


def taint_causes(taints: list[JSON]) -> list[Cause]:
    found, seen = [], set()
    for n, taint in enumerate(taints):
        field = f"metadata.taints[{n}]"
        found += [Cause.invalid(f"{field}.key", taint["key"], why) for why in qualified_faults(taint["key"])]
        if not taint.get("effect"):
            found.append(Cause.required(f"{field}.effect"))
        elif taint["effect"] not in EFFECTS:
            found.append(Cause.unsupported(f"{field}.effect", taint["effect"], EFFECTS))
        if (taint["key"], taint.get("effect")) in seen:
            as_printed = {"Key": taint["key"], "Value": taint.get("value", ""), "Effect": taint.get("effect")}
            why = "taints must be unique by key and effect pair"
            found.append(Cause.duplicate(field, {**as_printed, "TimeAdded": taint.get("timeAdded")}, why))
        seen.add((taint["key"], taint.get("effect")))
    return found


def quantity_causes(resources: dict[str, str], field: str, form: str = "{}.{}") -> list[Cause]:
    """Check that names are qualified, and that amounts are not negative, and whole for extended resources."""
    found = []
    for name, text in resources.items():
        value, where = amount(text), form.format(field, name)
        found += [Cause.invalid(where, name, why) for why in qualified_faults(name)]
        if value is not None and value < 0:
            found.append(Cause.invalid(where, text, "must be greater than or equal to 0"))
        elif value is not None and "/" in name and value != value.to_integral_value():
            found.append(Cause.invalid(where, text, "must be an integer"))
    return found
