"""The fleet in a few figures."""

from __future__ import annotations

import msgspec

from aliquot.dashboard.pages.node_summary import Digest
from aliquot.dashboard.view_models import NodeLook


class Figure(msgspec.Struct, frozen=True):
    """One figure above the table; ``path`` shows the nodes that it counts. ``mood`` is ``calm`` where none of what
    would need attention is there, else ``odd`` or ``bad``.
    """

    number: str
    what: str
    note: str = ""
    path: str = ""
    mood: str = ""


def headline(found: list[tuple[NodeLook, Digest]]) -> tuple[Figure, ...]:
    """What there is and what is free, then what may want a look."""
    looks, rows = [look for look, _ in found], [row for _, row in found]
    gpus, lost = sum(r.gpus for r in rows), sum(r.lost for r in rows)
    slices = _number(sum(r.slices for r in rows))
    return (
        _figure(len(found), "node" if len(found) == 1 else "nodes"),
        _figure(gpus, "GPU" if gpus == 1 else "GPUs", *((f"{lost} lost", "lost", "bad") if lost else ())),
        _figure(sum(r.held for r in rows), "instances held", "something runs on them"),
        _figure(sum(r.idle for r in rows), "instances idle", "ready to be given out", "idle"),
        _figure(sum(r.free for r in rows), "memory slices free", f"of {slices} in MIG mode", "free"),
        _holes(sum(r.holed for r in rows), sum(r.closable for r in rows)),
        _drifted(sum(bool(look.drift) for look in looks)),
        _stale(sum(look.stale for look in looks)),
    )


def _holes(holed: int, closable: int) -> Figure:
    what = "GPU with holes" if holed == 1 else "GPUs with holes"
    if not closable:
        return _figure(holed, what, "left over: nothing to close", "holes") if holed else _calm(what)
    rest = (
        "to close by moving idle ones" if closable == holed else f"{_number(closable)} to close, the rest is left over"
    )
    return _figure(holed, what, rest, "closable", "odd")


def _drifted(count: int) -> Figure:
    what = "node drifted" if count == 1 else "nodes drifted"
    return _figure(count, what, "not what was asked for", "drift", "odd") if count else _calm(what, "all as asked")


def _stale(count: int) -> Figure:
    what = "node does not answer" if count == 1 else "nodes do not answer"
    return _figure(count, what, "shown as last seen", "stale", "bad") if count else _calm(what)


def _calm(what: str, note: str = "") -> Figure:
    return _figure(0, what, note, mood="calm")


def _figure(count: int, what: str, note: str = "", show: str = "", mood: str = "") -> Figure:
    return Figure(_number(count), what, note, f"/?show={show}" if show else "", mood)


def _number(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
