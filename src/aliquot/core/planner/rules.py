"""Legality besides placement: each rule is a named predicate that explains its refusal.

A geometry is legal if every rule accepts its counts and its placements do not overlap (``placement_search``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from aliquot.core.model.catalog import ENGINES
from aliquot.core.model.desired import RuleCode
from aliquot.core.planner.placement_table import PlacementTable

Counts = Mapping[int, int]
"""Profile id -> number of instances."""


class RuleRefusal(msgspec.Struct, frozen=True):
    """A rule that refuses, and the reason in one sentence."""

    rule: RuleCode
    message: str


def _name(table: PlacementTable, profile_id: int) -> str:
    return table.profiles[profile_id].name


def known_profiles(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Require that every profile is in this GPU's table."""
    for profile_id, n in counts.items():
        if n and profile_id not in table.profiles:
            return RuleRefusal("UNKNOWN_PROFILE", f"profile id {profile_id} does not exist on this GPU")
    return None


def max_instances(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Limit each profile to the number that the driver reports as its total."""
    for profile_id, n in counts.items():
        limit = table.profiles[profile_id].max_instances
        if n > limit:
            return RuleRefusal(
                "MAX_INSTANCES", f"{n} x {_name(table, profile_id)} requested, at most {limit} fit on this GPU"
            )
    return None


def compute_slices(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Limit the compute slices of all instances to those of the GPU."""
    need = sum(table.profiles[p].compute_slices * n for p, n in counts.items())
    have = table.family.compute_slices
    if need > have:
        return RuleRefusal("COMPUTE_SLICES", f"{need} compute slices requested, this GPU has {have}")
    return None


def engine_totals(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Limit the copy, media and flow engines of all instances to those of the GPU."""
    for n, total in enumerate(table.totals):
        if total is None:
            continue
        need = sum(table.engines[p][n] * count for p, count in counts.items())
        if need > total:
            return RuleRefusal("ENGINES", f"{need} {ENGINES[n].upper()} engines requested, this GPU has {total}")
    return None


def at_most(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Apply limits that some profiles share, such as the media extension ``+me``."""
    for rule, ids, _ in table.rules:
        if rule.kind == "at-most" and sum(counts.get(p, 0) for p in ids) > rule.count:
            return RuleRefusal("AT_MOST", f"{rule.reason} (at most {rule.count})")
    return None


def excludes(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Allow only ``-me`` profiles next to ``+me.all``, which takes every media engine."""
    present = [p for p, n in counts.items() if n]
    for rule, ids, exceptions in table.rules:
        if rule.kind != "excludes":
            continue
        hits = sum(counts.get(p, 0) for p in ids)
        if hits > 1 or (hits and any(p not in ids and p not in exceptions for p in present)):
            return RuleRefusal("EXCLUDES", rule.reason)
    return None


def at_most_compute(table: PlacementTable, counts: Counts) -> RuleRefusal | None:
    """Limit instances without (or with) graphics, as on Thor."""
    for rule, _, _ in table.rules:
        if rule.kind not in ("at-most-compute", "at-most-gfx"):
            continue
        wanted = rule.kind == "at-most-gfx"
        if sum(n for p, n in counts.items() if table.profiles[p].gfx == wanted) > rule.count:
            return RuleRefusal("AT_MOST", rule.reason)
    return None


RULES: tuple[Callable[[PlacementTable, Counts], RuleRefusal | None], ...] = (
    known_profiles,
    max_instances,
    compute_slices,
    engine_totals,
    at_most,
    excludes,
    at_most_compute,
)


def refusals(table: PlacementTable, counts: Counts) -> Iterator[RuleRefusal]:
    """Yield the reasons why these counts are illegal in any placement, most specific rule first. Empty if they are
    legal.
    """
    for rule in RULES:
        refusal = rule(table, counts)
        if refusal is not None:
            yield refusal
            if refusal.rule == "UNKNOWN_PROFILE":
                return


def allowed(table: PlacementTable, counts: Counts) -> bool:
    """Report whether no rule refuses these counts."""
    return not any(True for _ in refusals(table, counts))
