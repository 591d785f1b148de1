"""The delays of wrong tokens and their addresses."""

from __future__ import annotations

from aliquot.dashboard.security.login_throttle import BACKOFF, FORGET_S, FREE, LoginAttempts


def test_the_wait_begins_with_the_shortest_and_grows() -> None:
    now = [100.0]
    attempts = LoginAttempts(lambda: now[0])
    for _ in range(FREE - 1):
        attempts.count_wrong("10.0.0.1", "x")
    assert attempts.wait("10.0.0.1", "x") == 0
    attempts.count_wrong("10.0.0.1", "x")
    assert attempts.wait("10.0.0.1", "x") == BACKOFF.first
    assert attempts.throttled_for("10.0.0.1") == BACKOFF.first
    attempts.count_wrong("10.0.0.1", "x")
    assert attempts.wait("10.0.0.1", "x") == 2 * BACKOFF.first
    now[0] += 2 * BACKOFF.first
    assert attempts.wait("10.0.0.1", "x") == 0
    assert attempts.wait("10.0.0.1", "other") == 0
    assert attempts.total == FREE + 1


def test_what_is_long_ago_is_forgotten() -> None:
    now = [0.0]
    attempts = LoginAttempts(lambda: now[0])
    for _ in range(FREE):
        attempts.count_wrong("10.0.0.1", "x")
    now[0] += FORGET_S
    attempts.count_wrong("10.0.0.1", "x")
    assert attempts.wait("10.0.0.1", "x") == 2 * BACKOFF.first, "not yet"
    now[0] += FORGET_S + 1
    attempts.count_wrong("10.0.0.1", "x")
    assert attempts.wait("10.0.0.1", "x") == 0
