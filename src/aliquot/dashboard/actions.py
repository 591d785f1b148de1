"""The write endpoints: a change request becomes a pending preview, and an applied preview becomes a change."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from aliquot.dashboard.application_context import Site
from aliquot.dashboard.page import Visit
from aliquot.dashboard.pending_changes import PendingChange
from aliquot.dashboard.security.request_guard import Form, RequestCaller, RequestRefusedError
from aliquot.errors import AliquotError


class Actions:
    """Endpoints for POST requests of the page's own forms.

    Each one answers with a redirect, so that reloading the page does not repeat the request.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def submit(self, request: Request, caller: RequestCaller) -> Response:
        """Preview the change that a form requests, and redirect to its plan.

        Raises AliquotError for an invalid request.
        """
        from aliquot.dashboard.forms import parse_change_request
        from aliquot.dashboard.pages.geometry_input import form_path

        visit, form = await self._may(request, caller)
        change_request = parse_change_request(form)
        try:
            change = await self._site.pending_changes.add(change_request, visit.who)
        except AliquotError:
            if target := form_path(self._site.source.fleet, change_request):
                return RedirectResponse(target, 303)
            raise
        return RedirectResponse(f"/plans/{change.id}", 303)

    async def again(self, request: Request, caller: RequestCaller) -> Response:
        """Preview the same request again, with the current state."""
        visit, _ = await self._may(request, caller)
        change = await self._site.pending_changes.add(self._pending_change(request).request, visit.who)
        return RedirectResponse(f"/plans/{change.id}", 303)

    async def apply(self, request: Request, caller: RequestCaller) -> Response:
        """Apply a plan."""
        visit, _ = await self._may(request, caller)
        change = self._pending_change(request)
        if self._site.pending_changes.closing:
            raise RequestRefusedError(
                503,
                "the dashboard is shutting down and starts no more changes",
                "Start it again, then repeat the request.",
            )
        self._site.pending_changes.apply(change, visit.who)
        return RedirectResponse(f"/plans/{change.id}", 303)

    async def _may(self, request: Request, caller: RequestCaller) -> tuple[Visit, Form]:
        form = await self._site.guard.form(request)
        self._site.guard.check_write(request, caller, form)
        visit = self._site.visit(caller, dict(request.path_params), "")
        if visit.who.reads_only:
            step = "Restart the dashboard without --read-only." if self._site.settings.read_only else ""
            raise RequestRefusedError(403, "you have read-only access", step)
        if not self._site.source.fleet.ready:
            raise RequestRefusedError(503, "not all nodes have been read yet", "Try again in a moment.", retry_s=2)
        return visit, form

    def _pending_change(self, request: Request) -> PendingChange:
        change = self._site.pending_changes.find(request.path_params["id"])
        if change is None:
            raise RequestRefusedError(404, "this plan no longer exists", "Request it again on the page of its GPU.")
        return change
