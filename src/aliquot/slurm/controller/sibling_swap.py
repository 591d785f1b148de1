"""The one-record rule carried out: a look at a host's CLOUD records, one decision, one word to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, groups, next_action

POLL_S = 1.0


def step(slurm: Slurm, wanted: str, hosts: Mapping[str, str]) -> SiblingAction:
    """Look, decide and do one act so that ``wanted`` becomes the open record of its host; what was done. ``hosts`` is
    the host of each record. Raises NoNodeError for what is no host's record, SlurmError.
    """
    mine = next((g for g in groups(slurm.nodes(), hosts).values() if any(n.name == wanted for n in g)), None)
    if mine is None:
        raise NoNodeError(
            f"{wanted} is none of several CLOUD records of one host", next_step="aliquot slurm siblings --check"
        )
    names = {node.name for node in mine}
    busy = {name for job in slurm.jobs() if not job.pending for name in job.nodes} & names
    action = next_action(mine, wanted, busy)
    apply_action(slurm, action)
    return action


def apply_action(slurm: Slurm, action: SiblingAction) -> None:
    """Tell Slurm. ``wait``, ``done`` and ``blocked`` need no word."""
    if action.verb == "drain":
        slurm.drain(action.node_name, action.why)
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
    """Act until the wanted record is open alone. ``clock`` is (now, sleep). Raises BlockedError where somebody else's
    hand is on a record, or jobs do not end in time: all that was done holds, and the same call goes on.
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
            raise BlockedError(action.why, next_step=f"scontrol show node {action.node_name}")
        if now() > deadline:
            raise BlockedError(
                f"{wanted} is not open after {timeout_s:g} s: {action.why}",
                details=("its siblings are drained, so nothing new starts on them",),
                next_step=f"aliquot slurm siblings --open {wanted} --timeout 3600",
            )
        sleep(POLL_S if action.verb == "wait" else 0.2)


__all__ = ["apply_action", "step", "swap"]
