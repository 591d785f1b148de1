"""Totals of the fleet."""

from __future__ import annotations

import msgspec

from aliquot.dashboard.pages.node_summary import NodeSummary
from aliquot.dashboard.view_models import ObservedNode


class FleetTotal(msgspec.Struct, frozen=True):
    """A total above the table. ``path`` lists the counted nodes.

    ``mood`` is ``calm`` for a zero count of problems, ``odd`` or ``bad`` for others, or "".
    """

    number: str
    what: str
    note: str = ""
    path: str = ""
    mood: str = ""


def headline(found: list[tuple[ObservedNode, NodeSummary]]) -> tuple[FleetTotal, ...]:
    """Compute the totals: resources first, then possible problems."""
    views, rows = [view for view, _ in found], [row for _, row in found]
    gpus, lost = sum(r.gpus for r in rows), sum(r.lost for r in rows)
    slices = _number(sum(r.slices for r in rows))
    return (
        _total(len(found), "node" if len(found) == 1 else "nodes"),
        _total(gpus, "GPU" if gpus == 1 else "GPUs", *((f"{lost} lost", "lost", "bad") if lost else ())),
        _total(sum(r.held for r in rows), "instances held", "in use by a workload"),
        _total(sum(r.idle for r in rows), "instances idle", "ready for use", "idle"),
        _total(sum(r.free for r in rows), "memory slices free", f"of {slices} in MIG mode", "free"),
        _fragmentation(sum(r.fragmented for r in rows), sum(r.closable for r in rows)),
        _drifted(sum(bool(view.drift) for view in views)),
        _stale(sum(view.stale for view in views)),
    )


def _fragmentation(fragmented: int, closable: int) -> FleetTotal:
    what = "GPU with holes" if fragmented == 1 else "GPUs with holes"
    if not closable:
        return _total(fragmented, what, "left over, cannot be closed", "holes") if fragmented else _zero(what)
    rest = (
        "closable by moving idle instances"
        if closable == fragmented
        else f"{_number(closable)} closable, the others left over"
    )
    return _total(fragmented, what, rest, "closable", "odd")


def _drifted(count: int) -> FleetTotal:
    what = "node with drift" if count == 1 else "nodes with drift"
    return (
        _total(count, what, "differs from the request" if count == 1 else "differ from the request", "drift", "odd")
        if count
        else _zero(what)
    )


def _stale(count: int) -> FleetTotal:
    what = "node not responding" if count == 1 else "nodes not responding"
    return _total(count, what, "shown as last read", "stale", "bad") if count else _zero(what)


def _zero(what: str, note: str = "") -> FleetTotal:
    return _total(0, what, note, mood="calm")


def _total(count: int, what: str, note: str = "", show: str = "", mood: str = "") -> FleetTotal:
    return FleetTotal(_number(count), what, note, f"/?show={show}" if show else "", mood)


def _number(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
