"""Expected driver answers, derived from the reviewed tables by brute force. Small, slow, and without shared code."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

CATALOG = Path(__file__).resolve().parents[3] / "catalog"
SLOTS: dict[str, dict[int, list[int]]] = yaml.safe_load((CATALOG / "placement-observations.yaml").read_text())[
    "instance_id_slots"
]
ENGINES = ("ce", "dec", "enc", "jpeg", "ofa")
Row = dict[str, Any]


@cache
def table(family: str) -> Row:
    return dict(yaml.safe_load((CATALOG / "mig" / f"{family}.yaml").read_text()))


class Oracle:
    """A GPU. ``there`` maps instance ids to (profile row, start)."""

    def __init__(self, family: str, swapped: bool) -> None:
        self.doc = table(family)
        self.swapped = swapped
        self.slots = SLOTS[self.doc["geometry"]["slot_model"]]
        self.units: int = self.doc["geometry"]["memory_slices"]
        self.there: dict[int, tuple[Row, int]] = {}
        self.ids = [p["id"] for p in self.doc["profiles"]]

    def row(self, profile: int) -> Row:
        return next(p for p in self.doc["profiles"] if p["id"] == profile)

    @staticmethod
    def cells(row: Row, start: int) -> set[int]:
        return set(range(start, start + row["placements"]["size"]))

    def number(self, row: Row, start: int) -> int:
        """Return the instance id of a placement: displayed cells to internal ones, then the row that covers exactly
        these.
        """
        inside = self.cells(row, start)
        if self.swapped and len(inside) < self.units:
            inside = {(c + self.units // 2) % self.units for c in inside}
        scale = self.units // self.slots[0][1]
        for number, (first, count) in self.slots.items():
            if set(range(first * scale, (first + count) * scale)) == inside:
                return number
        raise AssertionError((row["name"], start))

    def legal(self, rows: list[Row]) -> bool:
        """Report whether instances may exist together: counts, slices, engines and rules."""
        names = [r["name"] for r in rows]
        if sum(r["compute_slices"] for r in rows) > self.doc["geometry"]["compute_slices"]:
            return False
        if any(names.count(r["name"]) > r["max_instances"] for r in rows):
            return False
        totals = self.doc["engine_totals"]
        if any(totals[e] is not None and sum(r["engines"][e] or 0 for r in rows) > totals[e] for e in ENGINES):
            return False
        for rule in self.doc["rules"]:
            named = [n for n in names if n in rule.get("profiles", [])]
            if rule["kind"] == "at-most" and len(named) > rule["count"]:
                return False
            if rule["kind"] == "excludes" and named:
                others = [n for n in names if n not in rule["profiles"]]
                if len(named) > 1 or set(others) - set(rule["except"]):
                    return False
        return True

    @property
    def taken(self) -> set[int]:
        return {c for row, start in self.there.values() for c in self.cells(row, start)}

    def open_places(self, profile: int) -> list[int]:
        """Return the starts that are free, without regard to engines and rules."""
        row = self.row(profile)
        return [s for s in row["placements"]["starts"] if not self.cells(row, s) & self.taken]

    def create(self, profile: int, start: int | None) -> int:
        """Create an instance. Returns its id, or minus NVML's code."""
        row = self.row(profile)
        if start is not None and start not in row["placements"]["starts"]:
            return -2
        places = [s for s in self.open_places(profile) if start in (None, s)]
        if not places or not self.legal([*(r for r, _ in self.there.values()), row]):
            return -23
        best = min(places, key=lambda s: (-self.choices_after(row, s), self.number(row, s)))
        number = self.number(row, best)
        assert number not in self.there
        self.there[number] = (row, best)
        return number

    def choices_after(self, row: Row, start: int) -> int:
        """Count the (plain profile, start) pairs that stay free."""
        taken = self.taken | self.cells(row, start)
        plain = [p for p in self.doc["profiles"] if not p["attributes"]]
        return sum(not self.cells(p, s) & taken for p in plain for s in p["placements"]["starts"])

    def destroy(self, number: int) -> int:
        return 0 if self.there.pop(number, None) else -2

    def remaining(self, profile: int) -> int:
        """Return how many more instances of a profile fit. Tries every set of placements."""
        row, present = self.row(profile), [r for r, _ in self.there.values()]
        places = self.open_places(profile)
        for count in range(len(places), 0, -1):
            if not self.legal([*present, *[row] * count]):
                continue
            for chosen in combinations(places, count):
                if len(set().union(*(self.cells(row, s) for s in chosen))) == count * row["placements"]["size"]:
                    return count
        return 0
