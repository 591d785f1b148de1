"""Observer of the controller's observations and changes, for metrics."""

from __future__ import annotations

from typing import Protocol

from aliquot.slurm.controller.models import SlurmDecision, SlurmObservation


class SlurmObserver(Protocol):
    """An observer that the controller calls."""

    def on_observation(self, observation: SlurmObservation, decision: SlurmDecision) -> None: ...

    def on_change_started(self, node_name: str, now: float) -> None:
        """Record that a change of a node has started."""
        ...

    def on_change_ended(self, node_name: str, now: float, done: bool) -> None:
        """Record that the change of a node has ended."""
        ...


class NullSlurmObserver:
    """An observer that does nothing."""

    def on_observation(self, observation: SlurmObservation, decision: SlurmDecision) -> None:
        return

    def on_change_started(self, node_name: str, now: float) -> None:
        return

    def on_change_ended(self, node_name: str, now: float, done: bool) -> None:
        return
