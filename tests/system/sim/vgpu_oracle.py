"""Expected results of NVIDIA's vGPU driver, derived from the reviewed tables by brute force, without shared code."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

Row = dict[str, Any]
VGPU = Path(__file__).resolve().parents[3] / "catalog/vgpu"
NO_C_SERIES = ("NVIDIA A40", "NVIDIA L40S")


@cache
def table(product: str) -> Row:
    return dict(yaml.safe_load((VGPU / f"{product}.yaml").read_text()))


class Lies:
    """An existing vGPU: its row, its GPU instance and the cells (GiB) that it covers."""

    def __init__(self, row: Row, gi: int | None, place: int | None, cells: frozenset[int]) -> None:
        self.row = row
        self.gi = gi
        self.place = place
        self.cells = cells


class VgpuOracle:
    """A GPU. ``there`` are its vGPUs by function, ``instances`` the profile id of each GPU instance."""

    def __init__(self, product: str) -> None:
        self.doc = table(product)
        hidden = self.doc["name"] in NO_C_SERIES
        self.rows = [r for r in self.doc["types"] if r["id"] is not None and not (hidden and r["series"] == "C")]
        self.there: dict[str, Lies] = {}
        self.instances: dict[int, int] = {}
        self.mig = False
        self.mixed = False
        self.mixed_instances: set[int] = set()

    def row(self, type_id: int) -> Row:
        return next(r for r in self.rows if r["id"] == type_id)

    def placements(self, row: Row) -> list[int] | None:
        """Return the placements that a type may have now; None if the driver places nothing."""
        generation = self.doc["architecture"]
        if self.mixed or generation == "blackwell":
            return list(row["mixed_placements"])
        if generation in ("ada", "hopper"):
            return [n * row["fb_mib"] // 1024 for n in range(row["max"])]
        return None

    def cells(self, row: Row, place: int) -> frozenset[int]:
        size = row["fb_mib"] // 1024
        ids = row["mixed_placements"]
        if self.doc["architecture"] == "blackwell" and len(ids) > 1:
            size = max(size, min(b - a for a, b in pairwise(ids)))
        return frozenset(range(place, place + size))

    def placement(self, row: Row) -> int | None:
        taken = {c for v in self.there.values() for c in v.cells}
        return next((p for p in self.placements(row) or [] if not taken & self.cells(row, p)), None)

    def inside(self, row: Row, gi: int) -> int | None:
        """Return the first free placement of a type in a GPU instance in mixed-size mode."""
        most, size = row["mig"]["max_per_gi"], row["fb_mib"] // 1024
        taken = {c for v in self.there.values() if v.gi == gi for c in v.cells}
        # One vGPU of the largest type fills the instance: as many GiB as all vGPUs of this type together.
        return next((n * size for n in range(most) if not taken & set(range(n * size, n * size + size))), None)

    def hosts(self, row: Row) -> list[int]:
        """Return the GPU instances that accept a MIG-backed type."""
        if row["kind"] != "mig-backed":
            return []
        found = []
        for gi, profile in self.instances.items():
            if gi in self.mixed_instances:
                found += [gi] if profile == row["mig"]["gi_profile_id"] and self.inside(row, gi) is not None else []
                continue
            on = [v.row["fb_mib"] for v in self.there.values() if v.gi == gi]
            if (
                profile == row["mig"]["gi_profile_id"]
                and len(on) < row["mig"]["max_per_gi"]
                and set(on) <= {row["fb_mib"]}
            ):
                found.append(gi)
        return found

    def listed(self) -> list[int]:
        """Return the types that a function without a vGPU is offered."""
        return sorted(r["id"] for r in self.rows if self.offers(r))

    def offers(self, row: Row) -> bool:
        count = len(self.there)
        if self.mig:
            return bool(self.hosts(row)) and count < 48
        if row["kind"] == "mig-backed" or count >= min(row["max"], 32):
            return False
        if self.mixed:
            return count == 0 or self.placement(row) is not None
        return {v.row["fb_mib"] for v in self.there.values()} <= {row["fb_mib"]}

    def create(self, function: str, type_id: int) -> str:
        """Create a vGPU. Returns ``ok`` or the reason: busy, kind, size, full, place."""
        row = self.row(type_id)
        backed = row["kind"] == "mig-backed"
        if function in self.there:
            return "busy"
        if self.mig != backed or (self.mig and not self.instances):
            return "kind"
        if self.mig:
            if not self.hosts(row):
                return "place"
            gi = min(self.hosts(row))
            place = self.inside(row, gi) if gi in self.mixed_instances else None
            size = row["fb_mib"] // 1024
            cells = frozenset() if place is None else frozenset(range(place, place + size))
            self.there[function] = Lies(row, gi, place, cells)
            return "ok"
        if not self.mixed and any(v.row["fb_mib"] != row["fb_mib"] for v in self.there.values()):
            return "size"
        if len(self.there) >= (32 if self.mixed else min(32, row["max"])):
            return "full"
        if self.placements(row) is None:
            self.there[function] = Lies(row, None, None, frozenset())
            return "ok"
        place = self.placement(row)
        if place is None:
            return "place"
        self.there[function] = Lies(row, None, place, self.cells(row, place))
        return "ok"
