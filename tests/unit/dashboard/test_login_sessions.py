"""Sessions of the page: how many there are, and which one ends first."""

from __future__ import annotations

from aliquot.dashboard.security.sessions import MOST, LoginSessions
from aliquot.dashboard.view_models import Person


def test_the_session_that_was_not_used_for_longest_makes_room() -> None:
    now = [0.0]
    sessions = LoginSessions(lambda: now[0])
    opened = []
    for second in range(MOST):
        now[0] = float(second)
        opened.append(sessions.open(Person("ada")))
    assert sessions.find(opened[0][0]) is opened[0][1], "the first one is used again"
    sessions.open(Person("grace"))
    assert len(sessions) == MOST
    assert opened[1][1].ended.is_set()
    assert not any(session.ended.is_set() for n, (_, session) in enumerate(opened) if n != 1)
