"""The gate of a restart of slurmctld beside running jobs: no job starts on another node with GPUs meanwhile.

slurmctld 22.05 forgets the states of nodes when it starts. Until their slurmds have registered, some 4 s later, it
refuses steps in their jobs. With its option -R it remembers, but it does not know yet which devices a node has: a job
that starts there in that time opens none of them. So the restart uses -R only behind a reservation of these nodes.

The reservation ends after some minutes by itself, if nothing deletes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.slurm.client.errors import BusyError, RefusedError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.node import slot_gate
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.context import SlurmChangeContext

REMEMBER = "-R"
"""The option with which slurmctld keeps the states of nodes."""
MINUTES = 10
"""Duration of the reservation: slurmd stops, and slurmctld restarts, within the time limits of both commands."""
REGISTERED_S = 30.0
"""Seconds within which the slurmds of all nodes register with a new slurmctld. 22.05.8 asks them after 3 to 4 s."""


def name(node: str) -> str:
    """Return the name of the reservation: one per changed node, so that a later change of it finds it.

    It does not begin like that of a slot gate, so no node's name can make both the same.
    """
    return f"{slot_gate.RESTART_PREFIX}{node}"


def close(node: str, context: SlurmChangeContext) -> str:
    """Reserve the other nodes with GPUs, and return the options with which slurmctld may restart: "-R" or "".

    Nothing that may take long comes between this call and the restart: the reservation must not end before it.
    It is "" if a node is INVALID, because slurmctld would end its jobs, and if a reservation of the site prevents ours
    or lets its jobs start behind it. Raises SlurmError.
    """
    nodes = context.slurm.nodes()
    others = tuple(each.name for each in nodes if each.name != node and each.gres and "FUTURE" not in each.states)
    if any(each.invalid for each in nodes):
        return ""
    if not others:
        return REMEMBER
    context.slurm.delete_reservation(name(node))
    try:
        slot_gate.refuse_maintenance(others, context)
        context.slurm.reserve(name(node), ",".join(others), MINUTES)
    except (BusyError, RefusedError):
        return ""
    return REMEMBER


def open_again(node: str, context: SlurmChangeContext) -> None:
    """Delete the reservation, if there is one, once slurmctld knows the devices of all its nodes.

    If a slurmd does not register, the reservation ends by itself. Raises SlurmError.
    """
    found = next((each for each in context.slurm.reservations() if each.name == name(node)), None)
    if found is None:
        return
    unknown: tuple[str, ...] = ()
    for _ in waiting.turns(context, REGISTERED_S):
        unknown = _unregistered(found.nodes, context.slurm.nodes())
        if not unknown:
            context.slurm.delete_reservation(name(node))
            return
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    context.report(
        f"note: slurmd of {unknown[0]}{more} has not registered since slurmctld restarted. Reservation {name(node)} "
        f"keeps new jobs off nodes with GPUs for {MINUTES} minutes"
    )


def _unregistered(names: Iterable[str], nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
    """Return the nodes on which slurmctld would start a job without knowing their devices."""
    known = {each.name: each for each in nodes}
    return tuple(each for each in names if each in known and known[each].answers and not known[each].slurmd_start)
