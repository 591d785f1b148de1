"""Brute-force oracle for vGPUs, with the driver's creation rules restated over the reviewed YAML tables.

It imports nothing of Aliquot. One source is ``catalog/vgpu`` (types, counts, places), the other one the order of checks
in the open GPU kernel modules. The driver checks that the function has no vGPU, that the size matches, and that the
count is below the maximum. It then takes the first free place, or in MIG mode the lowest GPU instance that passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CATALOG = Path(__file__).resolve().parents[3] / "catalog" / "vgpu"


@cache
def make_gpu(name: str) -> dict[str, Any]:
    """Load a product's table by the name of its file."""
    doc: dict[str, Any] = yaml.safe_load((CATALOG / f"{name}.yaml").read_text())
    doc["by_short"] = {t["name"].rpartition(" ")[2]: t for t in doc["types"] if t["id"] is not None}
    return doc


def types(name: str, kind: str = "time-sliced") -> list[str]:
    """Return the short names of a product's types that can be created."""
    return [short for short, t in make_gpu(name)["by_short"].items() if t["kind"] == kind]


class PlacedVgpu(NamedTuple):
    """A vGPU with its type and the place or GPU instance that the driver assigned (None: no choice)."""

    type: str
    placement: int | None


State = tuple[PlacedVgpu, ...]


def gib(doc: dict[str, Any], short: str) -> int:
    """Return the GiB that a type takes of the capacity: 2 count as 3 on a board of 96."""
    whole = -(-doc["by_short"][short]["fb_mib"] // 1024)
    return 3 if whole == 2 and doc["placement_region"] == 96 else whole


def create(
    name: str, mode: str, state: State, short: str, instances: tuple[tuple[int, int], ...] = ()
) -> PlacedVgpu | None:
    """Return the vGPU that the driver creates next, with its place, or None if it refuses. ``instances`` are (id,
    profile) of the GPU instances in MIG mode.
    """
    doc = make_gpu(name)
    row = doc["by_short"][short]
    rows = [doc["by_short"][s.type] for s in state]
    if (row["kind"] == "mig-backed") != (mode == "mig"):
        return None
    if mode == "mig":
        for number, profile in sorted(instances):
            inside = [doc["by_short"][s.type] for s in state if s.placement == number]
            fits = not inside or inside[0]["fb_mib"] == row["fb_mib"]
            if profile == row["mig"]["gi_profile_id"] and fits and len(inside) < row["mig"]["max_per_gi"]:
                return PlacedVgpu(short, number)
        return None
    if mode == "equal":
        same = all(r["fb_mib"] == row["fb_mib"] for r in rows)
        return PlacedVgpu(short, None) if same and len(state) < row["max"] else None
    taken = {s.placement + n for s in state if s.placement is not None for n in range(gib(doc, s.type))}
    for place in row["mixed_placements"]:
        if not taken & set(range(place, place + gib(doc, short))):
            return PlacedVgpu(short, place)
    return None


def ends(
    name: str, mode: str, state: State, wanted: tuple[str, ...], instances: tuple[tuple[int, int], ...] = ()
) -> bool:
    """Report whether some order of creations adds all the requested vGPUs to the existing ones."""
    seen: set[tuple[State, tuple[str, ...]]] = set()

    def go(state: State, left: tuple[str, ...]) -> bool:
        key = tuple(sorted(state, key=repr)), left
        if not left:
            return True
        if key in seen:
            return False
        seen.add(key)
        for short in dict.fromkeys(left):
            made = create(name, mode, state, short, instances)
            if made is not None:
                rest = list(left)
                rest.remove(short)
                if go((*state, made), tuple(rest)):
                    return True
        return False

    return go(state, tuple(sorted(wanted)))


def least(
    name: str,
    mode: str,
    state: State,
    held: frozenset[int],
    wanted: Counter[str],
    instances: tuple[tuple[int, int], ...] = (),
) -> tuple[int, int] | None:
    """Return the least (held vGPUs destroyed, vGPUs destroyed) over every subset of the state (``held`` are indexes
    into it). None if not even an empty GPU can meet the request.
    """
    if not ends(name, mode, (), tuple(wanted.elements()), instances):
        return None
    best: tuple[int, int] | None = None
    for kept in _subsets(len(state)):
        stays = tuple(state[n] for n in kept)
        cost = len(held - set(kept)), len(state) - len(kept)
        if best is not None and cost >= best:
            continue
        rest = wanted.copy()
        rest.subtract(s.type for s in stays)
        if min(rest.values(), default=0) >= 0 and ends(name, mode, stays, tuple(rest.elements()), instances):
            best = cost
    return best


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(count, -1, -1):
        yield from combinations(range(count), size)


def joint(
    name: str,
    now: frozenset[tuple[str, int]],
    placed: dict[tuple[str, int], list[tuple[str, bool]]],
    wanted: Counter[str],
    targets: tuple[frozenset[tuple[str, int]], ...],
    profile: dict[str, int],
    number: Callable[[tuple[str, int]], int],
) -> tuple[int, int] | None:
    """Return the least (held devices destroyed, GPU instances and vGPUs destroyed) over every arrangement of GPU
    instances. ``placed`` are the vGPUs (type, held) in each instance of ``now``. ``number`` is the id of a place.
    """
    best: tuple[int, int] | None = None
    for target in targets:
        instances = tuple((number(place), profile[place[0]]) for place in target)
        gone = [place for place in now if place not in target]
        stays = [(s, number(p), h) for p, found in placed.items() if p in target for s, h in found]
        state = tuple(PlacedVgpu(s, n) for s, n, _ in stays)
        held = frozenset(n for n, (_, _, h) in enumerate(stays) if h)
        cost = least(name, "mig", state, held, wanted, instances)
        if cost is None:
            continue
        lost = [h for place in gone for _, h in placed.get(place, [])]
        busy = sum(any(h for _, h in placed.get(place, [])) for place in gone)
        total = cost[0] + sum(lost) + busy, cost[1] + len(lost) + len(gone)
        best = total if best is None else min(best, total)
    return best
