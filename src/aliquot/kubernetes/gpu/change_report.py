"""Outcome of a change for programs, in the status annotation and on the event of the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from aliquot.core.model.stored import Stored

ANNOTATION = "aliquot.dev/change"
"""On an event, which has no other data for programs."""
Rollback = Literal["undone", "partial"]
"""Outcome of the rollback of a failed change."""
UNDONE: Final = "undone"
PARTIAL: Final = "partial"
ROLLBACK_TEXT: dict[Rollback, str] = {UNDONE: "the former state is back", PARTIAL: "not all could be undone"}


_LONGEST_S = 86_400.0
"""Seconds that a change takes at most. A longer one was not written by an agent."""


class ChangeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of a change."""

    config: str = ""
    """Named config that was applied."""
    seconds: float = 0.0
    """Duration."""
    outcome: Stored[Literal["", Rollback]] = ""
    """``undone`` or ``partial`` if the change failed."""


def event_annotations(report: ChangeReport | None) -> dict[str, str]:
    """Return the annotations of the event about a change; none for an event about anything else."""
    return {} if report is None else {ANNOTATION: msgspec.json.encode(report).decode()}


def read(found: Mapping[str, str]) -> ChangeReport:
    """Return the outcome of a change from the annotations of its event."""
    try:
        report = msgspec.json.decode(found[ANNOTATION], type=ChangeReport)
        return report if 0 <= report.seconds <= _LONGEST_S else msgspec.structs.replace(report, seconds=0.0)
    except (KeyError, msgspec.DecodeError, UnicodeError, RecursionError):
        return ChangeReport()
