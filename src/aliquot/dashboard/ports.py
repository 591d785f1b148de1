"""Interfaces that the pages need: a source of fleet state, and an authenticator."""

from __future__ import annotations

from typing import Protocol

from aliquot.core.engine.step_timing import StepListener
from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.view_models import (
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    PastChange,
    Person,
    VirtualizationView,
)
from aliquot.foundation.callbacks import Report


class FleetSource(Protocol):
    """A node, a simulated fleet or a cluster. All methods are called on one event loop.

    ``fleet`` and ``virtual`` return the last observed state at once and never block.
    """

    kind: str
    title: str
    steps: StepListener
    """Receives each step of a change that is executed here. An agent reports the steps of its own changes itself."""

    @property
    def fleet(self) -> ObservedFleet: ...

    @property
    def virtual(self) -> VirtualizationView: ...

    @property
    def configs(self) -> tuple[str, ...]:
        """Named configs for ``UseConfig``; empty without a config file or a cluster."""
        ...

    def claims(self, node: str = "") -> ClaimsView:
        """Return the last known claims on GPUs: of all nodes, or of one with what is left of its GPUs.

        Empty outside a cluster.
        """
        ...

    async def run(self) -> None:
        """Observe the fleet, forever.

        An error of one node is stored in its state, an error of the whole source in the fleet.
        Only internal errors are raised.
        """
        ...

    async def changed(self, since: int) -> None:
        """Wait until the fleet's revision differs from ``since``."""
        ...

    async def preview(self, request: AnyChangeRequest, who: Person) -> ChangePreview:
        """Return the preview of a request, without changing anything.

        Raises AliquotError if the request is invalid or forbidden.
        The preview's obstacles say what cannot be applied here or now.
        """
        ...

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        """Execute a preview, or refuse it if the state changed since. Never raises AliquotError."""
        ...

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        """Return past changes, the newest first. ``node`` is None for all nodes."""
        ...

    async def may(self, who: Person, what: str) -> str:
        """Return why the user may not make this kind of change (a request's tag), "" if permitted.

        This disables buttons. ``execute`` checks again.
        """
        ...

    async def aclose(self) -> None: ...


class Authenticator(Protocol):
    """Checks of login tokens. ``hint`` describes the token to users (``the token that the command printed``)."""

    hint: str

    async def admit(self, token: str) -> Person | None:
        """Return the user of a token, None if it is invalid. Raises AliquotError if it cannot be checked now."""
        ...
