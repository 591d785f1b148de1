"""Who is told what the controller sees and does, to count it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aliquot.slurm.controller.loop import Look
    from aliquot.slurm.controller.models import Decision


class Told(Protocol):
    """Who counts."""

    def looked(self, look: Look, decision: Decision) -> None: ...

    def began(self, record: str, now: float) -> None:
        """A change of a record is under way."""
        ...

    def ended(self, record: str, now: float, done: bool) -> None:
        """It is over."""
        ...


class Untold:
    """Nobody counts."""

    def looked(self, look: Look, decision: Decision) -> None:
        return

    def began(self, record: str, now: float) -> None:
        return

    def ended(self, record: str, now: float, done: bool) -> None:
        return
