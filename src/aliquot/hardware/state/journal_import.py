"""Import of the journal of older releases, which kept the whole plan and inventory in the first record of a run."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.engine.ports import FORMAT, JournalEntry, JournalKind
from aliquot.core.engine.recorded_change import encode_change, record_change
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.stored import Stored


class _Older(msgspec.Struct):
    kind: Stored[JournalKind]
    run: str
    boot: str = ""
    gpu: str = ""
    step: str = ""
    text: str = ""
    plan: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()
    at: float = 0.0
    by: str = ""


def import_entry(text: bytes | None) -> JournalEntry | None:
    """Return a record of an older release in the current form; None if ``text`` contains none. A plan that this version
    cannot decode is omitted: then it is not continued, and the next request is planned from what exists.
    """
    try:
        found = msgspec.json.decode(text or b"", type=_Older)
    except (ValueError, RecursionError):
        return None
    begin = found.kind == "begin"
    return JournalEntry(
        found.kind,
        found.run,
        found.boot,
        found.gpu,
        found.step,
        found.text or (_name(found.plan) if begin else ""),
        change=_change(found),
        at=found.at,
        by=found.by,
        format=FORMAT if begin else 0,
    )


def _change(found: _Older) -> msgspec.Raw | None:
    try:
        plan = msgspec.json.decode(found.plan, type=Plan)
        return encode_change(record_change(plan, msgspec.json.decode(found.before, type=Inventory)))
    except (ValueError, RecursionError):  # it has none, or one with other fields
        return None


def _name(plan: msgspec.Raw) -> str:
    """Return the name of the request, which the oldest releases kept only in the plan."""
    try:
        known: Any = msgspec.json.decode(plan)
        return str(known["desired"].get("name") or "")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return ""
