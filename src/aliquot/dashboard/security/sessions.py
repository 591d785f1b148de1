"""Who is logged in. A session lives in memory: it ends with the process, on logout, unused, and after half a day."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from aliquot.dashboard.security.token_authenticator import digest
from aliquot.dashboard.view_models import Person

ABSOLUTE_S = 12 * 3600.0
IDLE_S = 3600.0
"""An open page with a live stream counts as use."""
MOST = 512
"""Only people with a token make sessions; the one unused longest gives way."""


class LoginSession:
    """One login. ``csrf`` is what its forms carry; ``ended`` is set when it is over, for streams that are open.
    ``owner`` is the user of this machine whose browser it is, None for another machine's.
    """

    def __init__(self, person: Person, now: float) -> None:
        self.person = person
        self.owner: int | None = None
        self.csrf = secrets.token_urlsafe(32)
        self.begun = self.used = self.checked = now
        self.ended = asyncio.Event()
        self.streams = 0


class LoginSessions:
    """By the digest of their id: what is in memory opens nothing. ``clock`` is in seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_digest: dict[bytes, LoginSession] = {}

    def open(self, person: Person) -> tuple[str, LoginSession]:
        """A new session and its id, for the cookie."""
        self.sweep()
        while len(self._by_digest) >= MOST:
            self._end(min(self._by_digest, key=lambda d: self._by_digest[d].used))
        id = secrets.token_urlsafe(32)
        session = LoginSession(person, self._clock())
        self._by_digest[digest(id)] = session
        return id, session

    def find(self, id: str) -> LoginSession | None:
        """The session, used now; None where it is over or never was."""
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
        """Whether a session, or a stream of it, may go on; that it is asked counts as use."""
        if session.ended.is_set() or self._clock() - session.begun > ABSOLUTE_S:
            return False
        session.used = self._clock()
        return True

    @property
    def streams(self) -> int:
        """Pages that are open and live."""
        return sum(session.streams for session in self._by_digest.values())

    def close(self, session: LoginSession) -> None:
        for key, known in list(self._by_digest.items()):
            if known is session:
                self._end(key)

    def sweep(self) -> None:
        """Ends what is over."""
        for key, session in list(self._by_digest.items()):
            if self._over(session):
                self._end(key)

    def clear(self) -> None:
        """Ends them all."""
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
