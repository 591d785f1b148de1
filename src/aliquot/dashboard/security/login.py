"""In and out: the login page, the link with a ticket, logging out."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from aliquot.dashboard.page import Shown
from aliquot.dashboard.security.local_peer import owner
from aliquot.dashboard.security.request_guard import Caller, Gate, Refused, first
from aliquot.dashboard.security.sessions import ABSOLUTE_S
from aliquot.dashboard.security.token_authenticator import TokenDoor
from aliquot.dashboard.view_models import Person

Draw = Callable[[Shown], str]


class Login:
    """``draw`` draws a page for somebody unknown."""

    def __init__(self, gate: Gate, draw: Draw) -> None:
        self._gate = gate
        self._draw = draw

    async def show(self, request: Request) -> Response:
        """The login page; with ``?token=TICKET`` the way in."""
        target = local_path(request.query_params.get("next", "/"))
        ticket = request.query_params.get("token")
        if ticket is not None:
            door = self._gate.door
            person = door.redeem(ticket) if isinstance(door, TokenDoor) else None
            if person is not None:
                return self._enter(request, person, target)
            return self._page(target, "This link was used already, or is older than ten minutes.", 401)
        if await self._gate.caller(request) is not None:
            return RedirectResponse(target, 303)
        return self._page(target)

    async def enter(self, request: Request) -> Response:
        """The token, posted. Raises AliquotError where nobody can tell now."""
        form = await self._gate.form(request)
        self._gate.check_write(request, None, form)
        target = local_path(first(form, "next"))
        try:
            person = await self._gate.admit(request, first(form, "token").strip())
        except Refused as refusal:
            answer = self._page(target, f"{capital(refusal.sentence)}. {refusal.next_step}".strip(), refusal.status)
            if refusal.retry_s:
                answer.headers["retry-after"] = str(int(refusal.retry_s) + 1)
            return answer
        return self._enter(request, person, target)

    async def leave(self, request: Request, caller: Caller) -> Response:
        """Ends the session and its open streams."""
        self._gate.sessions.close(caller.session)
        answer = RedirectResponse("/login", 303)
        secure = self._gate.cookie_is_secure(request)
        answer.delete_cookie(self._gate.cookie, secure=secure, httponly=True, samesite="strict")
        answer.headers["clear-site-data"] = '"cache"'
        return answer

    def _enter(self, request: Request, person: Person, target: str) -> Response:
        """A new session each time: an id that somebody planted before the login is worth nothing."""
        old = self._gate.sessions.find(request.cookies.get(self._gate.cookie, ""))
        if old is not None and old.owner == owner(request):
            self._gate.sessions.close(old)
        id, session = self._gate.sessions.open(person)
        session.owner = owner(request)
        answer = self.onward(request, target)
        answer.set_cookie(
            self._gate.cookie,
            id,
            max_age=int(ABSOLUTE_S),
            secure=self._gate.cookie_is_secure(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    def onward(self, request: Request, target: str) -> Response:
        """To a page of ours. Who comes by a link of another site is sent on by a page: a redirect would still count as
        that site's request, and a strict cookie would stay behind.
        """
        if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return RedirectResponse(target, 303)
        return HTMLResponse(self._draw(Shown("onward.html", "One moment", context={"target": target})))

    def _page(self, target: str, trouble: str = "", status: int = 200) -> Response:
        context = {"next": target, "hint": self._gate.door.hint, "trouble": trouble}
        return HTMLResponse(self._draw(Shown("login.html", "Log in", context=context)), status)


def local_path(target: str) -> str:
    """A path of this server, never another server: ``//elsewhere`` and ``/\\elsewhere`` are those."""
    if not target.startswith("/") or target[1:2] in ("/", "\\") or any(ord(c) < 33 or ord(c) == 127 for c in target):
        return "/"
    return quote(target, safe="/?&=%:,.~+-_@*!$'();")


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
