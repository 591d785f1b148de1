"""The time window of a report."""

from __future__ import annotations

import time

import pytest

from aliquot.errors import UsageError
from aliquot.slurm.report.window import Window, parse_since

NOW = 1_790_000_000


@pytest.mark.parametrize(
    ("text", "length"), [("30min", 1800), ("12h", 12 * 3600), (" 7d", 7 * 86400), ("4w", 28 * 86400)]
)
def test_a_length_ends_now(text: str, length: int) -> None:
    assert parse_since(text, NOW) == Window(NOW - length, NOW)


def test_a_date_is_in_local_time_unless_it_names_a_zone() -> None:
    assert parse_since("2026-09-20", NOW).since == int(time.mktime((2026, 9, 20, 0, 0, 0, 0, 0, -1)))
    assert parse_since("2026-09-20T00:00:00+00:00", NOW).since == 1_789_862_400
    assert parse_since("2026-09-20T02:00:00+02:00", NOW).since == 1_789_862_400


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "d", "-7d", "0d", "7days", "9999999d", "367d", "٣d", "7d; reboot"),
        *("yesterday", "2027-01-01", "2026-13-01", "0001-01-01", "9999-12-31"),
    ],
)
def test_what_is_not_a_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_since(text, NOW)
    assert refused.value.next_step == "aliquot slurm report --since 7d"


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [(110, 120, 10), (0, 120, 20), (150, 0, 50), (150, 900, 50), (0, 900, 100), (0, 50, 0), (300, 0, 0), (120, 110, 0)],
)
def test_a_job_counts_with_its_seconds_in_the_window(start: int, end: int, seconds: int) -> None:
    assert Window(100, 200).overlap_s(start, end) == seconds
