"""Brute-force oracle: small, slow, obviously right. It reads the reviewed YAML tables and imports nothing of
Aliquot.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
ENGINES = ("ce", "dec", "enc", "jpeg", "ofa")
Placed = tuple[str, int]
"""(profile name, start)."""
State = frozenset[Placed]


@cache
def table(family: str) -> dict[str, Any]:
    doc: dict[str, Any] = yaml.safe_load((CATALOG / "mig" / f"{family}.yaml").read_text())
    return doc


def families() -> list[str]:
    return sorted(p.stem for p in (CATALOG / "mig").glob("*.yaml"))


def slices(doc: dict[str, Any], place: Placed) -> set[int]:
    row = next(p for p in doc["profiles"] if p["name"] == place[0])
    return set(range(place[1], place[1] + row["placements"]["size"]))


def legal(family: str, state: State) -> bool:
    """Report whether a state is legal by the README of the catalog: no overlap, compute slices and engine totals within
    limits, no profile above its maximum, all rules met.
    """
    doc = table(family)
    rows = {p["name"]: p for p in doc["profiles"]}
    counts = Counter(name for name, _ in state)
    covered: list[int] = [s for place in state for s in slices(doc, place)]
    if len(covered) != len(set(covered)):
        return False
    if sum(rows[n]["compute_slices"] * c for n, c in counts.items()) > doc["geometry"]["compute_slices"]:
        return False
    if any(c > rows[n]["max_instances"] for n, c in counts.items()):
        return False
    for engine in ENGINES:
        total = doc["engine_totals"][engine]
        if total is not None and sum((rows[n]["engines"][engine] or 0) * c for n, c in counts.items()) > total:
            return False
    for rule in doc["rules"]:
        hit = sum(c for n, c in counts.items() if n in rule.get("profiles", ()))
        if rule["kind"] == "at-most" and hit > rule["count"]:
            return False
        if rule["kind"] == "excludes":
            others = [n for n in counts if n not in rule["profiles"] and n not in rule["except"]]
            if hit > 1 or (hit and others):
                return False
        if (
            rule["kind"] == "at-most-compute"
            and sum(c for n, c in counts.items() if not rows[n]["gfx"]) > rule["count"]
        ):
            return False
        if rule["kind"] == "at-most-gfx" and sum(c for n, c in counts.items() if rows[n]["gfx"]) > rule["count"]:
            return False
    return True


@cache
def states(family: str, base_only: bool = False) -> tuple[State, ...]:
    """Return every legal placed state, including the empty one. States grow by one instance at a time (legality is
    inherited).
    """
    doc = table(family)
    base = {"1g", "2g", "3g", "4g", "7g"}
    singles = [
        (p["name"], s)
        for p in doc["profiles"]
        for s in p["placements"]["starts"]
        if not base_only or (not p["attributes"] and p["nvml_index"] <= 4 and p["name"][:2] in base)
    ]
    seen: set[State] = {frozenset()}
    frontier: list[State] = [frozenset()]
    while frontier:
        grown = []
        for state in frontier:
            for place in singles:
                bigger = state | {place}
                if place not in state and bigger not in seen and legal(family, bigger):
                    seen.add(bigger)
                    grown.append(bigger)
        frontier = grown
    return tuple(sorted(seen, key=sorted))


def geometry(state: State) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(name for name, _ in state).items()))


@cache
def by_geometry(family: str, base_only: bool = False) -> dict[tuple[tuple[str, int], ...], tuple[State, ...]]:
    out: dict[tuple[tuple[str, int], ...], list[State]] = {}
    for state in states(family, base_only):
        out.setdefault(geometry(state), []).append(state)
    return {g: tuple(found) for g, found in out.items()}


def room(family: str, state: State) -> int:
    """Return how many placements of plain profiles are still free."""
    doc = table(family)
    taken = {s for place in state for s in slices(doc, place)}
    return sum(
        not (slices(doc, (p["name"], start)) & taken)
        for p in doc["profiles"]
        if not p["attributes"]
        for start in p["placements"]["starts"]
    )


def least(now: State, held: State, targets: tuple[State, ...]) -> tuple[int, int]:
    """Return the least (held instances destroyed, instances destroyed) over every target state."""
    return min((len(held - t), len(now - t)) for t in targets)


def subsets(state: State) -> list[State]:
    items = sorted(state)
    return [frozenset(c) for n in range(len(items) + 1) for c in combinations(items, n)]
