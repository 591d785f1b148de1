"""What the pages need from the world: a source of looks, and a door."""

from __future__ import annotations

from typing import Protocol

from aliquot.core.engine.step_timing import StepListener
from aliquot.dashboard.change_requests import AnyChangeRequest
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
    """A node, a simulated fleet or a cluster. Everything is asked on one event loop; ``fleet`` and ``virtual`` answer
    at once from the last look and never block.
    """

    kind: str
    title: str
    steps: StepListener
    """Is told each step of a change that is carried out here. An agent tells those of its own changes itself."""

    @property
    def fleet(self) -> ObservedFleet: ...

    @property
    def virtual(self) -> VirtualizationView: ...

    @property
    def configs(self) -> tuple[str, ...]:
        """The named configs that ``UseConfig`` can name; none where there is no file and no cluster."""
        ...

    async def run(self) -> None:
        """Keeps the looks fresh, for ever. Trouble with a node is in its look, trouble with all in the fleet; only a
        fault of ours is raised.
        """
        ...

    async def changed(self, since: int) -> None:
        """Returns once the fleet's revision is not ``since``."""
        ...

    async def preview(self, request: AnyChangeRequest, who: Person) -> ChangePreview:
        """What it comes to. Touches nothing. Raises AliquotError for what is wrong everywhere or forbidden; what is
        not possible here or now is in the preview's obstacles.
        """
        ...

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        """Does exactly what was previewed, or refuses because something moved since. Never raises AliquotError."""
        ...

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        """Past changes, the newest first; ``node`` None is all nodes."""
        ...

    async def may(self, who: Person, what: str) -> str:
        """Why this person may not change things of this kind (an ask's tag), "" if they may. For greying out buttons:
        ``execute`` asks again.
        """
        ...

    async def aclose(self) -> None: ...


class Authenticator(Protocol):
    """Who may come in. ``hint`` tells people what to give (``the token that the command printed``)."""

    hint: str

    async def admit(self, token: str) -> Person | None:
        """The person that a token stands for, None for a wrong one. Raises AliquotError where nobody can tell now."""
        ...
