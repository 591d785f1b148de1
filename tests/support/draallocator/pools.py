"""The pools that a node can use: complete, of the newest generation, and valid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from support.standin.quantity import amount

JSON = dict[str, Any]
Key = tuple[str, str]
"""The driver and name of a pool, or the counter set and name of a counter."""
_UNKNOWN = ("allowMultipleAllocations", "bindingConditions", "bindsToNode", "nodeAllocatableResourceMappings")


class Device(msgspec.Struct, frozen=True, eq=False):
    """A published device.

    Attributes:
        uses: what it takes from the counters of its pool while it is allocated
        published: the entry of the slice
        node_local: the slice leaves the choice of nodes to its devices
    """

    driver: str
    pool: str
    name: str
    uses: tuple[tuple[Key, Decimal], ...]
    published: JSON
    node_local: bool

    @property
    def id(self) -> tuple[str, str, str]:
        """Return what names it in a cluster."""
        return (self.driver, self.pool, self.name)


class Pool(msgspec.Struct, frozen=True, eq=False):
    """A pool as one node sees it.

    Attributes:
        devices: those of this node, in the order of allocation
        elsewhere: those of other nodes; they take from the same counters
        counters: the size of each counter
        fault: ``incomplete`` or ``invalid`` if nothing can be allocated from the pool, else ""
    """

    driver: str
    name: str
    devices: tuple[Device, ...] = ()
    elsewhere: tuple[Device, ...] = ()
    counters: dict[Key, Decimal] = {}
    fault: str = ""


def gather(slices: Iterable[JSON], node: JSON) -> list[Pool]:
    """Return the pools with devices for a node, in the order of allocation."""
    # The slices of a pool may differ in how many there are. Release 1.36 believes one of this node before others.
    everything = sorted(
        slices, key=lambda one: bool(one["spec"].get("sharedCounters") or "nodeName" not in one["spec"])
    )
    seen: dict[Key, list[JSON]] = {}
    for one in everything:
        if not _concerns(one["spec"], node):
            continue
        known = seen.setdefault(_pool(one), [])
        if known and _generation(known[0]) > _generation(one):
            continue
        if known and _generation(known[0]) < _generation(one):
            known.clear()
        known.append(one)
    found = (_found(key, rows, everything) for key, rows in sorted(seen.items()))
    return [pool for pool in found if pool is not None]


def _pool(one: JSON) -> Key:
    return (one["spec"]["driver"], one["spec"]["pool"]["name"])


def _generation(one: JSON) -> int:
    return int(one["spec"]["pool"].get("generation", 0))


def _found(key: Key, rows: Sequence[JSON], everything: Sequence[JSON]) -> Pool | None:
    """Build the pool, or return None if a newer generation exists that has nothing for this node."""
    generation, wanted = _generation(rows[0]), rows[0]["spec"]["pool"]["resourceSliceCount"]
    whole = list(rows)
    if len(rows) != wanted:
        siblings = [one for one in everything if _pool(one) == key]
        if any(_generation(one) > generation for one in siblings):
            return None
        whole = [one for one in siblings if _generation(one) == generation]
        if len(whole) != wanted:
            return Pool(*key, fault="incomplete")
    mine = {one["metadata"]["name"] for one in rows}
    return _built(key, _devices(rows), _devices(one for one in whole if one["metadata"]["name"] not in mine), rows)


def _built(key: Key, devices: tuple[Device, ...], elsewhere: tuple[Device, ...], rows: Sequence[JSON]) -> Pool:
    sets = [entry for one in rows for entry in one["spec"].get("sharedCounters") or []]
    counters = {
        (entry["name"], name): _amount(counter["value"])
        for entry in sets
        for name, counter in entry["counters"].items()
    }
    unique = len({device.name for device in devices}) == len(devices)
    distinct = len({entry["name"] for entry in sets}) == len(sets)
    known = all(use in counters for device in (*devices, *elsewhere) for use, _ in device.uses)
    if unique and distinct and known:
        return Pool(*key, devices, elsewhere, counters)
    return Pool(*key, fault="invalid")


def _devices(rows: Iterable[JSON]) -> tuple[Device, ...]:
    ordered = sorted(rows, key=lambda one: one["metadata"]["name"].encode())
    return tuple(device for one in ordered for device in _of_slice(one["spec"]))


def _of_slice(spec: JSON) -> Iterator[Device]:
    for entry in spec.get("devices") or []:
        lacking = [field for field in _UNKNOWN if entry.get(field)]
        if lacking:
            raise NotImplementedError(f"device {entry['name']}: {lacking[0]}")
        uses = tuple(
            ((block["counterSet"], name), _amount(counter["value"]))
            for block in entry.get("consumesCounters") or []
            for name, counter in block["counters"].items()
        )
        yield Device(
            spec["driver"],
            spec["pool"]["name"],
            entry["name"],
            uses,
            entry,
            bool(spec.get("perDeviceNodeSelection")),
        )


def _amount(text: Any) -> Decimal:
    value = amount(str(text))
    if value is None:
        raise ValueError(f"not a quantity: {text!r}")
    return value


def _concerns(spec: JSON, node: JSON) -> bool:
    """Report whether a slice has something for a node. Counters concern every node."""
    if spec.get("sharedCounters"):
        return True
    if spec.get("perDeviceNodeSelection"):
        return any(on_node(entry, node) for entry in spec.get("devices") or [])
    return on_node(spec, node)


def on_node(where: JSON, node: JSON) -> bool:
    """Report whether a slice, or a device that chooses its nodes, is of this node."""
    if where.get("nodeName"):
        return bool(where["nodeName"] == node["metadata"]["name"])
    if where.get("allNodes"):
        return True
    terms = (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    return any(_term(term, node) for term in terms)


def _term(term: JSON, node: JSON) -> bool:
    labels = node["metadata"].get("labels") or {}
    rows = [(row, labels) for row in term.get("matchExpressions") or []]
    rows += [(row, {"metadata.name": node["metadata"]["name"]}) for row in term.get("matchFields") or []]
    return bool(rows) and all(_requirement(row, values) for row, values in rows)


def _requirement(row: JSON, values: dict[str, str]) -> bool:
    operator: str = row["operator"]
    wanted: list[str] = row.get("values") or []
    found = values.get(row["key"])
    if operator in ("Exists", "DoesNotExist"):
        return (found is not None) is (operator == "Exists")
    if operator == "NotIn":
        return found not in wanted
    if operator == "In":
        return found in wanted
    if found is None or not re.fullmatch(r"-?\d+", found):
        return False
    return int(found) > int(wanted[0]) if operator == "Gt" else int(found) < int(wanted[0])
