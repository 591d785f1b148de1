"""Authentication of requests, and checks of their forms."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from aliquot.dashboard.ports import Authenticator
from aliquot.dashboard.security.csrf import foreign_write, same
from aliquot.dashboard.security.local_peer import owner
from aliquot.dashboard.security.login_throttle import CHECKS, LoginAttempts
from aliquot.dashboard.security.sessions import LoginSession, LoginSessions
from aliquot.dashboard.security.token_authenticator import digest
from aliquot.dashboard.view_models import Person
from aliquot.errors import AliquotError

MOST_BYTES = 256 * 1024
"""The maximum size of a form. A form with every vGPU of a large cluster is smaller."""
MOST_FIELDS = 8192
BODY_S = 10.0
BEARER_S = 30.0
"""How long a valid Authorization header is cached."""
MOST_BEARERS = 256
RECHECK_S = 300.0
"""The interval of new checks of a session's cluster token."""
MOST_TOKEN = 16 * 1024
"""The maximum length of a token. Cluster tokens that list many groups are long."""

Form = dict[str, tuple[str, ...]]
"""The fields of a form: the values of each name, in their order."""


class RequestRefusedError(Exception):
    """A request is refused with an HTTP ``status`` and a sentence."""

    def __init__(self, status: int, sentence: str, next_step: str = "", *, retry_s: float = 0.0) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.next_step, self.retry_s = status, sentence, next_step, retry_s


class RequestCaller(msgspec.Struct, frozen=True):
    """The caller of a request: a browser session, or with ``bearer`` a client that sends its token every time."""

    session: LoginSession
    bearer: bool = False


class RequestGuard:
    """Authenticates requests and checks forms. ``secure`` means HTTPS; ``trusted`` are names of a reverse proxy.

    The name of the cookie contains the port. Browsers send a host's cookies to all its ports, and two dashboards must
    not overwrite each other's cookie.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        sessions: LoginSessions,
        *,
        secure: bool,
        trusted: frozenset[str],
        port: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.authenticator, self.sessions, self.secure, self.trusted = authenticator, sessions, secure, trusted
        self.attempts = LoginAttempts()
        self._checks = asyncio.Semaphore(CHECKS)
        self._clock = clock
        self.cookie = f"__Host-aliquot-{port}" if secure else f"aliquot-{port}"
        self._bearers: OrderedDict[bytes, tuple[LoginSession, float]] = OrderedDict()

    def cookie_is_secure(self, request: Request) -> bool:
        """Report whether the client uses HTTPS, directly or through a reverse proxy."""
        return self.secure or request.headers.get("x-forwarded-proto", "").lower() == "https"

    async def caller(self, request: Request) -> RequestCaller | None:
        """Return the caller, None if not logged in.

        Raises RequestRefusedError for an invalid Authorization header, AliquotError if it cannot be checked.
        """
        if (given := request.headers.get("authorization")) is not None:
            return RequestCaller(await self._bearer(request, given), bearer=True)
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        if session is not None and session.owner != owner(request):
            return None  # another local user sent this cookie, which a browser sent to their server at another port
        return RequestCaller(session) if session is not None and await self.still_valid(session) else None

    async def still_valid(self, session: LoginSession) -> bool:
        """Report whether a session is still valid.

        Cluster tokens expire or are revoked, so they are checked again at intervals.
        If a check fails with an error, the session stays valid. The API server checks every write anyway.
        """
        if not self.sessions.alive(session):
            return False
        token = session.person.token
        if token and self._clock() - session.checked > RECHECK_S:
            session.checked = self._clock()
            try:
                person = await self.authenticator.admit(token)
            except AliquotError:
                return True
            if person is None:
                self.sessions.close(session)
                return False
            session.person = person
        return True

    async def _bearer(self, request: Request, given: str) -> LoginSession:
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise RequestRefusedError(401, "invalid Authorization header: use Bearer TOKEN")
        key, now = digest(token.strip()), self._clock()
        session, until = self._bearers.get(key, (None, 0.0))
        if session is not None and now < until:
            return session
        person = await self.admit(request, token.strip())
        if session is None or session.person != person or not self.sessions.alive(session):
            session = LoginSession(person, now)
        self._bearers[key] = (session, now + BEARER_S)
        self._bearers.move_to_end(key)
        while len(self._bearers) > MOST_BEARERS:
            self._bearers.popitem(last=False)
        return session

    async def admit(self, request: Request, token: str) -> Person:
        """Return the person that a token stands for. Raises RequestRefusedError for a wrong one."""
        client = request.client.host if request.client else ""
        if (wait := self.attempts.wait(client, token)) > 0:
            raise _throttled(wait)
        guessing = self.attempts.throttled_for(client)
        async with self._checks if guessing else nullcontext():
            person = await self.authenticator.admit(token) if len(token) <= MOST_TOKEN else None
        if person is not None:
            self.attempts.forget(client, token)
            return person
        self.attempts.count_wrong(client, token)
        if guessing:
            raise _throttled(self.attempts.throttled_for(client))
        raise RequestRefusedError(401, "invalid token", f"Use {self.authenticator.hint}.")

    def check_write(self, request: Request, caller: RequestCaller | None, form: Form) -> None:
        """Raise RequestRefusedError for a form that is not from this site. Bearer clients need no ``csrf`` field."""
        if reason := foreign_write(request, self.trusted, secure=self.secure):
            raise RequestRefusedError(403, reason, "Open the dashboard and send the form there.")
        if caller is None or caller.bearer:
            return
        if not same(first(form, "csrf"), caller.session.csrf):
            raise RequestRefusedError(
                403, "this form is from an earlier login", "Go back, reload the page and repeat the request."
            )

    async def form(self, request: Request) -> Form:
        """Read the fields of a form. Raises RequestRefusedError if it is too large, too slow or not a form."""
        if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            raise RequestRefusedError(415, "invalid content type: use application/x-www-form-urlencoded")
        body = await _body(request)
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
        except ValueError as error:
            raise RequestRefusedError(400, "the form is invalid") from error
        fields: dict[str, list[str]] = {}
        for name, value in pairs:
            fields.setdefault(name, []).append(value)
        return {name: tuple(values) for name, values in fields.items()}


def _throttled(wait: float) -> RequestRefusedError:
    return RequestRefusedError(429, f"too many wrong tokens from this address: try again in {wait:.0f} s", retry_s=wait)


def first(form: Form, name: str) -> str:
    """Return the first value of a field, "" if it is missing."""
    return form.get(name, ("",))[0]


async def _body(request: Request) -> bytes:
    parts, length = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                length += len(part)
                if length > MOST_BYTES:
                    raise RequestRefusedError(
                        413, f"the form is larger than {MOST_BYTES // 1024} KiB", "Select fewer entries at a time."
                    )
                parts.append(part)
    except TimeoutError as error:
        raise RequestRefusedError(408, f"the form did not arrive within {BODY_S:g} s") from error
    except ClientDisconnect as error:
        raise RequestRefusedError(400, "the form is incomplete") from error
    return b"".join(parts)
