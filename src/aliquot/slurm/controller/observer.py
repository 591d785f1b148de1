"""Who is told what the controller sees and does, to count it."""

from __future__ import annotations

from typing import Protocol

from aliquot.slurm.controller.models import SlurmDecision, SlurmObservation


class SlurmObserver(Protocol):
    """Who counts."""

    def on_observation(self, observation: SlurmObservation, decision: SlurmDecision) -> None: ...

    def on_change_started(self, node_name: str, now: float) -> None:
        """A change of a record is under way."""
        ...

    def on_change_ended(self, node_name: str, now: float, done: bool) -> None:
        """It is over."""
        ...


class NullSlurmObserver:
    """Nobody counts."""

    def on_observation(self, observation: SlurmObservation, decision: SlurmDecision) -> None:
        return

    def on_change_started(self, node_name: str, now: float) -> None:
        return

    def on_change_ended(self, node_name: str, now: float, done: bool) -> None:
        return
