"""The time window of a report, in whole seconds since the epoch."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from aliquot.errors import UsageError

LONGEST_S = 366 * 86400
_LENGTH = re.compile(r"(\d{1,6})(min|h|d|w)", re.ASCII)
_UNIT_S = {"min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Window(msgspec.Struct, frozen=True):
    """A time window. ``until`` is the time of the report."""

    since: int
    until: int

    @property
    def length_s(self) -> int:
        return self.until - self.since

    def overlap_s(self, start: int, end: int) -> int:
        """Return the seconds of a job that are in the window. ``end`` is 0 for a job that still runs."""
        return max(0, min(end or self.until, self.until) - max(start, self.since))


def parse_since(text: str, now: int) -> Window:
    """Return the window from ``7d``, ``12h`` or ``2026-11-01`` (local time) to now. Raises UsageError."""
    match = _LENGTH.fullmatch(text.strip())
    since = now - int(match[1]) * _UNIT_S[match[2]] if match else _moment(text)
    if since is None:
        raise _invalid(f"invalid --since {text!r}: use a length (30min, 12h, 7d, 4w) or a date (2026-11-01)")
    if since >= now:
        raise _invalid(f"--since {text} is not in the past")
    if now - since > LONGEST_S:
        raise _invalid(f"--since {text} is longer ago than {LONGEST_S // 86400} days")
    return Window(since, now)


def _moment(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _invalid(brief: str) -> UsageError:
    return UsageError(brief, next_step="aliquot slurm report --since 7d")
