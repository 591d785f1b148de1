"""The next command for a job that waits because no node can be repartitioned for it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from aliquot.slurm.controller.models import MARK, SlurmNodeState

_NAMED = 8
"""Most nodes in a command."""


def waiting_step(node_states: Iterable[SlurmNodeState], job: int) -> str:
    """Return the command for the nodes that suit a job but are blocked: what needs an operator comes before what ends
    by itself. The command shows the job if none of the nodes explains the wait.
    """
    suitable = [each for each in node_states if not each.changing]
    unanswered = next((each for each in suitable if each.shut or each.failure), None)
    if unanswered is not None:
        return node_command(unanswered)
    stopped = [each.name for each in suitable if _is_stopped(each)]
    if stopped:
        return f"scontrol show node {_names(stopped)}"
    busy = [each.name for each in suitable if each.jobs]
    return f"squeue --nodelist={_names(busy)}" if busy else f"scontrol show job {job}"


def node_command(node_state: SlurmNodeState) -> str:
    """Return the command with which the controller queries a node: it shows the GPUs and the last change."""
    return shlex.join([*node_state.host.reach, "aliquot", "slurm", "node", "--node-name", node_state.name])


def _is_stopped(node_state: SlurmNodeState) -> bool:
    """Report whether Slurm lacks a node, or it is down, or another user or program drained it."""
    node = node_state.node
    return node is None or not node.answers or (node.draining and not node.reason.startswith(MARK))


def _names(names: Sequence[str]) -> str:
    return ",".join(names[:_NAMED])
