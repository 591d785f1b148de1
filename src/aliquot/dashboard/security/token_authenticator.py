"""Authentication with a single token. Only digests are stored, so that memory holds no usable token."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import secrets
import time

from aliquot.dashboard.view_models import Person

TICKET_S = 600.0
"""How long a login link is valid. It may stay visible in a terminal's scrollback."""


def digest(token: str) -> bytes:
    """Hash a token for storage."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class TokenAuthenticator:
    """Admits users with the token as ``person``. A ticket does the same once, within ten minutes."""

    def __init__(self, token: str, person: Person, hint: str) -> None:
        self.hint = hint
        self._token = digest(token)
        self._person = person
        self._ticket: tuple[bytes, float] | None = None

    def ticket(self) -> str:
        """Create a ticket and invalidate the previous one."""
        made = secrets.token_urlsafe(32)
        self._ticket = (digest(made), time.monotonic() + TICKET_S)
        return made

    def redeem(self, ticket: str) -> Person | None:
        """Return the user for a valid ticket, and invalidate the ticket."""
        if self._ticket is None or time.monotonic() > self._ticket[1]:
            return None
        if not hmac.compare_digest(digest(ticket), self._ticket[0]):
            return None
        self._ticket = None
        return self._person

    async def admit(self, token: str) -> Person | None:
        return self._person if hmac.compare_digest(digest(token), self._token) else None


def new_token_authenticator(token: str, path: str) -> tuple[TokenAuthenticator, str]:
    """Create the authenticator for a token from a file, or for a new token.

    The second value is the new token, "" if the token is from the file.
    """
    made = "" if token else secrets.token_urlsafe(32)
    hint = f"the token in {path}" if token else "the token that the command printed"
    return TokenAuthenticator(token or made, Person(_user()), hint), made


def _user() -> str:
    """Return the user who started the dashboard, for the journal. A user in a container may have no name."""
    try:
        return f"{getpass.getuser()}, on the page"
    except (KeyError, OSError):
        return f"user {os.getuid()}, on the page"
