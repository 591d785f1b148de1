"""Busy records that take no new jobs for a while: told to Slurm, each from a look of that very moment.

A round may wait a minute for nodes that do not answer. Whoever drained a record meanwhile, or gave another reason, is
not to be overruled by what was decided from the look before.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.log_once import Telling
from aliquot.slurm.controller.models import WAITING, Decision


def act(decision: Decision, slurm: Slurm, telling: Telling, say: Callable[[str], None]) -> None:
    """Drain, and resume, what was decided."""
    for name in decision.resume:
        telling.tried(f"resume {name}", _resume, slurm, name)
    for drain in decision.drains:
        telling.tried(f"drain {drain.record}", _drain, slurm, drain.record, drain.reason, say)


def _resume(slurm: Slurm, name: str) -> None:
    node = slurm.node(name)
    if node.draining and node.reason.startswith(WAITING):
        slurm.resume(name)


def _drain(slurm: Slurm, name: str, reason: str, say: Callable[[str], None]) -> None:
    node = slurm.node(name)
    free = not node.draining or node.reason.startswith(WAITING)
    if free and node.reason != reason:
        say(f"{name} takes no new jobs: {reason}")
        slurm.drain(name, reason)
