"""Drains and resumes busy nodes. Each node is read again right before.

A round may wait a minute for nodes that do not answer. If someone else has drained a node since then, or set another
reason, the older decision must not override that.
"""

from __future__ import annotations

from aliquot.foundation.callbacks import Report
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import WAITING, SlurmDecision


def apply_drains(decision: SlurmDecision, slurm: Slurm, log_once: LogOnce, log: Report) -> None:
    """Drain and resume the nodes of a decision."""
    for name in decision.resume:
        log_once.attempt(f"resume {name}", _resume, slurm, name)
    for drain in decision.drains:
        log_once.attempt(f"drain {drain.node_name}", _drain, slurm, drain.node_name, drain.reason, log)


def _resume(slurm: Slurm, name: str) -> None:
    node = slurm.node(name)
    if node.draining and node.reason.startswith(WAITING):
        slurm.resume(name)


def _drain(slurm: Slurm, name: str, reason: str, log: Report) -> None:
    node = slurm.node(name)
    free = not node.draining or node.reason.startswith(WAITING)
    if free and node.reason != reason:
        log(f"{name} takes no new jobs: {reason}")
        slurm.drain(name, reason)
