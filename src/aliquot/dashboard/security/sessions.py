"""Login sessions in memory. A session ends on logout, with the process, if unused, and after twelve hours."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from aliquot.dashboard.security.token_authenticator import digest
from aliquot.dashboard.view_models import Person

ABSOLUTE_S = 12 * 3600.0
IDLE_S = 3600.0
"""How long a session may be unused. An open page with a live stream counts as use."""
MOST = 512
"""The number of sessions. Only users with a token open sessions; the least recently used one is closed first."""


class LoginSession:
    """A login. ``csrf`` is the token of its forms, and ``ended`` wakes open streams when it ends.

    ``owner`` is the uid of the browser on this host, None for a remote browser.
    """

    def __init__(self, person: Person, now: float) -> None:
        self.person = person
        self.owner: int | None = None
        self.csrf = secrets.token_urlsafe(32)
        self.begun = self.used = self.checked = now
        self.ended = asyncio.Event()
        self.streams = 0


class LoginSessions:
    """All sessions by the digest of their id, so that memory holds no usable id. ``clock`` is monotonic (seconds)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_digest: dict[bytes, LoginSession] = {}

    def open(self, person: Person) -> tuple[str, LoginSession]:
        """Open a session. Return its id for the cookie, and the session."""
        self.sweep()
        while len(self._by_digest) >= MOST:
            self._end(min(self._by_digest, key=lambda d: self._by_digest[d].used))
        id = secrets.token_urlsafe(32)
        session = LoginSession(person, self._clock())
        self._by_digest[digest(id)] = session
        return id, session

    def find(self, id: str) -> LoginSession | None:
        """Return a session and mark it as used, None if it ended or never existed."""
        key = digest(id)
        session = self._by_digest.get(key)
        if session is None:
            return None
        if self._over(session):
            self._end(key)
            return None
        session.used = self._clock()
        return session

    def alive(self, session: LoginSession) -> bool:
        """Report whether a session and its streams may continue. The call counts as use."""
        if session.ended.is_set() or self._clock() - session.begun > ABSOLUTE_S:
            return False
        session.used = self._clock()
        return True

    @property
    def streams(self) -> int:
        """The number of open pages with a stream."""
        return sum(session.streams for session in self._by_digest.values())

    def close(self, session: LoginSession) -> None:
        for key, known in list(self._by_digest.items()):
            if known is session:
                self._end(key)

    def sweep(self) -> None:
        """End expired sessions."""
        for key, session in list(self._by_digest.items()):
            if self._over(session):
                self._end(key)

    def clear(self) -> None:
        """End all sessions."""
        for key in list(self._by_digest):
            self._end(key)

    @property
    def all(self) -> tuple[LoginSession, ...]:
        return tuple(self._by_digest.values())

    def __len__(self) -> int:
        return len(self._by_digest)

    def _over(self, session: LoginSession) -> bool:
        now = self._clock()
        return now - session.begun > ABSOLUTE_S or now - session.used > IDLE_S

    def _end(self, key: bytes) -> None:
        self._by_digest.pop(key).ended.set()
