"""Legality beyond placement: each rule is a named predicate that explains its refusal.

A geometry is legal when every rule lets its counts pass and its placements do not overlap (``pack``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from aliquot.core.model.catalog import ENGINES
from aliquot.core.planner.placement_table import Board

Counts = Mapping[int, int]
"""Profile id -> number of instances."""


class Refusal(msgspec.Struct, frozen=True):
    """Which rule says no, and why, in one sentence."""

    rule: str
    message: str


def _name(board: Board, profile_id: int) -> str:
    return board.profiles[profile_id].name


def known_profiles(board: Board, counts: Counts) -> Refusal | None:
    """Every profile is in this GPU's table."""
    for profile_id, n in counts.items():
        if n and profile_id not in board.profiles:
            return Refusal("UNKNOWN_PROFILE", f"profile id {profile_id} does not exist on this GPU")
    return None


def max_instances(board: Board, counts: Counts) -> Refusal | None:
    """No profile exceeds the number that the driver reports as its total."""
    for profile_id, n in counts.items():
        limit = board.profiles[profile_id].max_instances
        if n > limit:
            return Refusal("MAX_INSTANCES", f"{n} x {_name(board, profile_id)} asked, at most {limit} fit on this GPU")
    return None


def compute_slices(board: Board, counts: Counts) -> Refusal | None:
    """The compute slices of all instances exist."""
    need = sum(board.profiles[p].compute_slices * n for p, n in counts.items())
    have = board.family.compute_slices
    if need > have:
        return Refusal("COMPUTE_SLICES", f"{need} compute slices asked, this GPU has {have}")
    return None


def engine_totals(board: Board, counts: Counts) -> Refusal | None:
    """Copy, media and flow engines of all instances together never exceed the GPU's."""
    for n, total in enumerate(board.totals):
        if total is None:
            continue
        need = sum(board.engines[p][n] * count for p, count in counts.items())
        if need > total:
            return Refusal("ENGINES", f"{need} {ENGINES[n].upper()} engines asked, this GPU has {total}")
    return None


def at_most(board: Board, counts: Counts) -> Refusal | None:
    """Some profiles share a limit, as the media extension ``+me`` does."""
    for rule, ids, _ in board.rules:
        if rule.kind == "at-most" and sum(counts.get(p, 0) for p in ids) > rule.count:
            return Refusal("AT_MOST", f"{rule.reason} (at most {rule.count})")
    return None


def excludes(board: Board, counts: Counts) -> Refusal | None:
    """``+me.all`` takes every media engine: only the ``-me`` profiles can exist next to it."""
    present = [p for p, n in counts.items() if n]
    for rule, ids, exceptions in board.rules:
        if rule.kind != "excludes":
            continue
        hits = sum(counts.get(p, 0) for p in ids)
        if hits > 1 or (hits and any(p not in ids and p not in exceptions for p in present)):
            return Refusal("EXCLUDES", rule.reason)
    return None


def at_most_compute(board: Board, counts: Counts) -> Refusal | None:
    """Limits on instances without (or with) graphics, as on Thor."""
    for rule, _, _ in board.rules:
        if rule.kind not in ("at-most-compute", "at-most-gfx"):
            continue
        wanted = rule.kind == "at-most-gfx"
        if sum(n for p, n in counts.items() if board.profiles[p].gfx == wanted) > rule.count:
            return Refusal("AT_MOST", rule.reason)
    return None


RULES: tuple[Callable[[Board, Counts], Refusal | None], ...] = (
    known_profiles,
    max_instances,
    compute_slices,
    engine_totals,
    at_most,
    excludes,
    at_most_compute,
)


def refusals(board: Board, counts: Counts) -> Iterator[Refusal]:
    """Why these counts are illegal on any placement, most telling rule first. Empty if they are legal."""
    for rule in RULES:
        refusal = rule(board, counts)
        if refusal is not None:
            yield refusal
            if refusal.rule == "UNKNOWN_PROFILE":
                return


def allowed(board: Board, counts: Counts) -> bool:
    """True if no rule forbids these counts."""
    return not any(True for _ in refusals(board, counts))
