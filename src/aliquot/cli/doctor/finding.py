"""The findings of ``aliquot doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from aliquot.errors import AliquotError

Status = Literal["ok", "note", "problem"]
_NAMED = 5
"""Names that a sentence lists."""


class DoctorFinding(msgspec.Struct, frozen=True):
    """The result of one check. ``area`` groups the results, ``check`` names the check for programs."""

    area: str
    check: str
    status: Status
    message: str
    next_step: str | None = msgspec.field(name="next", default=None)


def failed(area: str, check: str, error: AliquotError, *, what: str = "", status: Status = "problem") -> DoctorFinding:
    """Return the finding for a check that ended in an error. ``what`` stands before the error's sentence."""
    return DoctorFinding(area, check, status, f"{what}: {error.brief}" if what else error.brief, error.next_step)


def first_names(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
