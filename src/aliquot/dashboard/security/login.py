"""Login page, login link with a ticket, and logout."""

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
    """The login endpoints. ``draw`` renders a page without a user."""

    def __init__(self, guard: RequestGuard, draw: Draw) -> None:
        self._guard = guard
        self._draw = draw

    async def show(self, request: Request) -> Response:
        """Show the login page, or log in with the ticket of ``?token=TICKET``."""
        target = local_path(request.query_params.get("next", "/"))
        ticket = request.query_params.get("token")
        if ticket is not None:
            authenticator = self._guard.authenticator
            person = authenticator.redeem(ticket) if isinstance(authenticator, TokenAuthenticator) else None
            if person is not None:
                return self._enter(request, person, target)
            return self._page(target, "This link was used already or has expired. Log in with the token.", 401)
        if await self._guard.caller(request) is not None:
            return RedirectResponse(target, 303)
        return self._page(target)

    async def enter(self, request: Request) -> Response:
        """Log in with a posted token. Raises AliquotError if it cannot be checked now."""
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
        """End the session and its open streams."""
        self._guard.sessions.close(caller.session)
        answer = RedirectResponse("/login", 303)
        secure = self._guard.cookie_is_secure(request)
        answer.delete_cookie(self._guard.cookie, secure=secure, httponly=True, samesite="strict")
        answer.headers["clear-site-data"] = '"cache"'
        return answer

    def _enter(self, request: Request, person: Person, target: str) -> Response:
        """Open a new session, against session fixation: an id from before the login is not valid."""
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
        """Redirect to a page of this server.

        After a link from another site, this uses a page with a refresh. The browser treats a redirect as part of that
        site's request and would not send the strict cookie.
        """
        if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return RedirectResponse(target, 303)
        return HTMLResponse(self._draw(PageContent("onward.html", "One moment", context={"target": target})))

    def _page(self, target: str, error: str = "", status: int = 200) -> Response:
        context = {"next": target, "hint": self._guard.authenticator.hint, "trouble": error}
        return HTMLResponse(self._draw(PageContent("login.html", "Log in", context=context)), status)


def local_path(target: str) -> str:
    r"""Return the target if it is a path of this server, else "/". ``//host`` and ``/\host`` are other servers."""
    if not target.startswith("/") or target[1:2] in ("/", "\\") or any(ord(c) < 33 or ord(c) == 127 for c in target):
        return "/"
    return quote(target, safe="/?&=%:,.~+-_@*!$'();")


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
