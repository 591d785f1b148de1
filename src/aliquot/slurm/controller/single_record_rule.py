"""The one-record rule carried out: a look at a host's CLOUD records, one decision, one word to Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.layouts.cloud_siblings import Act, groups, next_act

POLL_S = 1.0


def step(slurm: Slurm, wanted: str, hosts: Mapping[str, str]) -> Act:
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
    act = next_act(mine, wanted, busy)
    carry_out(slurm, act)
    return act


def carry_out(slurm: Slurm, act: Act) -> None:
    """Tell Slurm. ``wait``, ``done`` and ``blocked`` need no word."""
    if act.verb == "drain":
        slurm.drain(act.record, act.why)
    elif act.verb == "power-down":
        slurm.power(act.record, False)
    elif act.verb == "open":
        slurm.resume(act.record)


def swap(
    slurm: Slurm,
    wanted: str,
    hosts: Mapping[str, str],
    timeout_s: float,
    clock: tuple[Callable[[], float], Callable[[float], None]],
    say: Callable[[Act], None],
) -> None:
    """Act until the wanted record is open alone. ``clock`` is (now, sleep). Raises BlockedError where somebody else's
    hand is on a record, or jobs do not end in time: all that was done holds, and the same call goes on.
    """
    now, sleep = clock
    deadline = now() + timeout_s
    last: Act | None = None
    while True:
        act = step(slurm, wanted, hosts)
        if act != last:
            say(act)
        last = act
        if act.verb == "done":
            return
        if act.verb == "blocked":
            raise BlockedError(act.why, next_step=f"scontrol show node {act.record}")
        if now() > deadline:
            raise BlockedError(
                f"{wanted} is not open after {timeout_s:g} s: {act.why}",
                details=("its siblings are drained, so nothing new starts on them",),
                next_step=f"aliquot slurm siblings --open {wanted} --timeout 3600",
            )
        sleep(POLL_S if act.verb == "wait" else 0.2)


__all__ = ["carry_out", "step", "swap"]
