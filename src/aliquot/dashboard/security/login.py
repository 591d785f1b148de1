"""In and out: the login page, the link with a ticket, logging out."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from aliquot.dashboard.page import PageContent
from aliquot.dashboard.security.local_peer import owner
from aliquot.dashboard.security.request_guard import RequestCaller, RequestGuard, RequestRefusedError, first
from aliquot.dashboard.security.sessions import ABSOLUTE_S
from aliquot.dashboard.security.token_authenticator import TokenAuthenticator
from aliquot.dashboard.view_models import Person

Draw = Callable[[PageContent], str]


class Login:
    """``draw`` draws a page for somebody unknown."""

    def __init__(self, guard: RequestGuard, draw: Draw) -> None:
        self._guard = guard
        self._draw = draw

    async def show(self, request: Request) -> Response:
        """The login page; with ``?token=TICKET`` the way in."""
        target = local_path(request.query_params.get("next", "/"))
        ticket = request.query_params.get("token")
        if ticket is not None:
            authenticator = self._guard.authenticator
            person = authenticator.redeem(ticket) if isinstance(authenticator, TokenAuthenticator) else None
            if person is not None:
                return self._enter(request, person, target)
            return self._page(target, "This link was used already, or is older than ten minutes.", 401)
        if await self._guard.caller(request) is not None:
            return RedirectResponse(target, 303)
        return self._page(target)

    async def enter(self, request: Request) -> Response:
        """The token, posted. Raises AliquotError where nobody can tell now."""
        form = await self._guard.form(request)
        self._guard.check_write(request, None, form)
        target = local_path(first(form, "next"))
        try:
            person = await self._guard.admit(request, first(form, "token").strip())
        except RequestRefusedError as refusal:
            answer = self._page(target, f"{capital(refusal.sentence)}. {refusal.next_step}".strip(), refusal.status)
            if refusal.retry_s:
                answer.headers["retry-after"] = str(int(refusal.retry_s) + 1)
            return answer
        return self._enter(request, person, target)

    async def leave(self, request: Request, caller: RequestCaller) -> Response:
        """Ends the session and its open streams."""
        self._guard.sessions.close(caller.session)
        answer = RedirectResponse("/login", 303)
        secure = self._guard.cookie_is_secure(request)
        answer.delete_cookie(self._guard.cookie, secure=secure, httponly=True, samesite="strict")
        answer.headers["clear-site-data"] = '"cache"'
        return answer

    def _enter(self, request: Request, person: Person, target: str) -> Response:
        """A new session each time: an id that somebody planted before the login is worth nothing."""
        old = self._guard.sessions.find(request.cookies.get(self._guard.cookie, ""))
        if old is not None and old.owner == owner(request):
            self._guard.sessions.close(old)
        id, session = self._guard.sessions.open(person)
        session.owner = owner(request)
        answer = self.redirect(request, target)
        answer.set_cookie(
            self._guard.cookie,
            id,
            max_age=int(ABSOLUTE_S),
            secure=self._guard.cookie_is_secure(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    def redirect(self, request: Request, target: str) -> Response:
        """To a page of ours. Who comes by a link of another site is sent on by a page: a redirect would still count as
        that site's request, and a strict cookie would stay behind.
        """
        if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return RedirectResponse(target, 303)
        return HTMLResponse(self._draw(PageContent("onward.html", "One moment", context={"target": target})))

    def _page(self, target: str, error: str = "", status: int = 200) -> Response:
        context = {"next": target, "hint": self._guard.authenticator.hint, "trouble": error}
        return HTMLResponse(self._draw(PageContent("login.html", "Log in", context=context)), status)


def local_path(target: str) -> str:
    r"""A path of this server, never another server: ``//elsewhere`` and ``/\elsewhere`` are those."""
    if not target.startswith("/") or target[1:2] in ("/", "\\") or any(ord(c) < 33 or ord(c) == 127 for c in target):
        return "/"
    return quote(target, safe="/?&=%:,.~+-_@*!$'();")


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
