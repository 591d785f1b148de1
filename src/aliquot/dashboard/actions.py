"""What people do: an ask becomes a preview on the desk, and a preview a change."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import Visit
from aliquot.dashboard.pending_changes import Sheet
from aliquot.dashboard.security.request_guard import Caller, Form, Refused
from aliquot.errors import AliquotError


class Actions:
    """Every one of them is a POST with a form of ours, answered by a redirect: reloading does nothing again."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def ask(self, request: Request, caller: Caller) -> Response:
        """A form that asks for something, to the page of its plan. Raises AliquotError for what cannot be asked."""
        from aliquot.dashboard.forms import ask_from
        from aliquot.dashboard.pages.geometry_input import way_back

        visit, form = await self._may(request, caller)
        ask = ask_from(form)
        try:
            sheet = await self._site.desk.put(ask, visit.who)
        except AliquotError:
            if way := way_back(self._site.source.fleet, ask):
                return RedirectResponse(way, 303)
            raise
        return RedirectResponse(f"/plans/{sheet.id}", 303)

    async def again(self, request: Request, caller: Caller) -> Response:
        """The same ask anew: what it comes to now."""
        visit, _ = await self._may(request, caller)
        sheet = await self._site.desk.put(self._sheet(request).ask, visit.who)
        return RedirectResponse(f"/plans/{sheet.id}", 303)

    async def apply(self, request: Request, caller: Caller) -> Response:
        """Yes to a plan."""
        visit, _ = await self._may(request, caller)
        sheet = self._sheet(request)
        if self._site.desk.closing:
            raise Refused(
                503, "this page is about to end, and begins nothing any more", "Start it again, then ask anew."
            )
        self._site.desk.apply(sheet, visit.who)
        return RedirectResponse(f"/plans/{sheet.id}", 303)

    async def _may(self, request: Request, caller: Caller) -> tuple[Visit, Form]:
        form = await self._site.gate.form(request)
        self._site.gate.check_write(request, caller, form)
        visit = self._site.visit(caller, dict(request.path_params), "")
        if visit.who.reads_only:
            step = "Start the page without --read-only." if self._site.settings.read_only else ""
            raise Refused(403, "you may look at everything here and change nothing", step)
        if not self._site.source.fleet.ready:
            raise Refused(503, "not everything was looked at yet", "Try again in a moment.", retry_s=2)
        return visit, form

    def _sheet(self, request: Request) -> Sheet:
        sheet = self._site.desk.find(request.path_params["id"])
        if sheet is None:
            raise Refused(404, "this plan is not there any more", "Ask for it anew, on the GPU's own page.")
        return sheet
