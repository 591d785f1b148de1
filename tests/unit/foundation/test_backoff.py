"""Back-off after consecutive failures."""

from __future__ import annotations

import pytest

from aliquot.foundation.backoff import Backoff


def test_it_doubles_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3.0)
    assert [backoff.pause(n) for n in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("failures", [64, 65, 10_000, 10**12])
def test_any_number_of_failures_is_bounded(failures: int) -> None:
    assert Backoff(first=1e-3, longest=30.0).pause(failures) == 30.0


def test_another_factor() -> None:
    assert [Backoff(first=1.0, longest=100.0, factor=3.0).pause(n) for n in (1, 2, 3)] == [1.0, 3.0, 9.0]


def test_a_first_pause_beyond_the_longest_is_cut() -> None:
    assert Backoff(first=10.0, longest=3.0).pause(1) == 3.0


def test_a_server_may_ask_for_more_up_to_the_longest() -> None:
    backoff = Backoff(first=1.0, longest=30.0)
    assert [backoff.pause(1, least) for least in (0.5, 7.0, 600.0)] == [1.0, 7.0, 30.0]


def test_jitter_spreads_around_the_pause() -> None:
    found = [Backoff(first=1.0, longest=8.0, jitter=(0.8, 1.2)).pause(3) for _ in range(200)]
    assert 3.2 <= min(found) < 3.9
    assert 4.1 < max(found) <= 4.8
