"""The door of a page with one token. Only digests of it are kept: what is in memory opens nothing."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import secrets
import time

from aliquot.dashboard.view_models import Person

TICKET_S = 600.0
"""A link that nobody opened for ten minutes opens nothing any more: it may be in a terminal's scrollback."""


def digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class TokenAuthenticator:
    """Whoever has the token may come in, as ``person``. A ticket does the same once, within ten minutes."""

    def __init__(self, token: str, person: Person, hint: str) -> None:
        self.hint = hint
        self._token = digest(token)
        self._person = person
        self._ticket: tuple[bytes, float] | None = None

    def ticket(self) -> str:
        """A new ticket; the one before is void."""
        made = secrets.token_urlsafe(32)
        self._ticket = (digest(made), time.monotonic() + TICKET_S)
        return made

    def redeem(self, ticket: str) -> Person | None:
        """The person, for a ticket that is good; from now on it is not."""
        if self._ticket is None or time.monotonic() > self._ticket[1]:
            return None
        if not hmac.compare_digest(digest(ticket), self._ticket[0]):
            return None
        self._ticket = None
        return self._person

    async def admit(self, token: str) -> Person | None:
        return self._person if hmac.compare_digest(digest(token), self._token) else None


def new_token_authenticator(token: str, path: str) -> tuple[TokenAuthenticator, str]:
    """The door for a token from a file, or for one made now: that one is the second value, "" for the other."""
    made = "" if token else secrets.token_urlsafe(32)
    hint = f"the token in {path}" if token else "the token that the command printed"
    return TokenAuthenticator(token or made, Person(_user()), hint), made


def _user() -> str:
    """Who started the page, for the record; a container's user may have no name."""
    try:
        return f"{getpass.getuser()}, on the page"
    except (KeyError, OSError):
        return f"user {os.getuid()}, on the page"
