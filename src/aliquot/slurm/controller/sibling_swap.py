"""Enforces that one CLOUD record of a host is open: read the records, decide, and send one request to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, groups, next_action

POLL_S = 1.0


def step(slurm: Slurm, wanted: str, hosts: Mapping[str, str]) -> SiblingAction:
    """Take one step toward ``wanted`` being the only open record of its host, and return the action.

    ``hosts`` maps each record to its host. Raises NoNodeError if ``wanted`` is not one of several records of a host.
    Raises SlurmError.
    """
    mine = next((g for g in groups(slurm.nodes(), hosts).values() if any(n.name == wanted for n in g)), None)
    if mine is None:
        raise NoNodeError(
            f"{wanted} is not one of several CLOUD records of a host", next_step="aliquot slurm siblings --check"
        )
    names = {node.name for node in mine}
    busy = {name for job in slurm.jobs() if not job.pending for name in job.nodes} & names
    action = next_action(mine, wanted, busy)
    apply_action(slurm, action)
    return action


def apply_action(slurm: Slurm, action: SiblingAction) -> None:
    """Send an action to Slurm. ``wait``, ``done`` and ``blocked`` need no request."""
    if action.verb == "drain":
        slurm.drain(action.node_name, action.reason)
    elif action.verb == "power-down":
        slurm.power(action.node_name, False)
    elif action.verb == "open":
        slurm.resume(action.node_name)


def swap(
    slurm: Slurm,
    wanted: str,
    hosts: Mapping[str, str],
    timeout_s: float,
    clock: tuple[Callable[[], float], Callable[[float], None]],
    report: Callable[[SiblingAction], None],
) -> None:
    """Act until ``wanted`` is the only open record of its host. ``clock`` is (now, sleep).

    Raises BlockedError if someone else has drained a record, or if jobs do not end in time. The steps so far stay in
    effect, and the same call continues.
    """
    now, sleep = clock
    deadline = now() + timeout_s
    last: SiblingAction | None = None
    while True:
        action = step(slurm, wanted, hosts)
        if action != last:
            report(action)
        last = action
        if action.verb == "done":
            return
        if action.verb == "blocked":
            raise BlockedError(action.why, code="NOT_OPEN", next_step=f"scontrol show node {action.node_name}")
        if now() > deadline:
            raise BlockedError(
                f"{wanted} is not open after {timeout_s:g} s: {action.reason}",
                code="NOT_OPEN",
                details=("The other records of its host are drained, so no new jobs start on them.",),
                next_step=f"aliquot slurm siblings --open {wanted} --timeout 3600",
            )
        sleep(POLL_S if action.verb == "wait" else 0.2)


__all__ = ["apply_action", "step", "swap"]
