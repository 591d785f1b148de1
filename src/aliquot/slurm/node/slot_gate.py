"""The gate of a change beside running jobs: a reservation of the node, behind which no job starts.

It is never a drain: Slurm lets a step of a running job wait for a minute if it is requested while its node is drained.
A reservation for maintenance (MAINT, IGNORE_JOBS) leaves running jobs and their steps alone.

The reservation ends after some minutes by itself, until something is about to change. From then on it lasts until the
change has ended, because a job must not start on a slot whose instance is not what Slurm believes.

Only a job of a site's own reservation for maintenance starts behind it, because Slurm ignores all other reservations
for such a job. So nothing changes while one could. Jobs of every other kind of reservation wait (tested on 22.05 and
24.11 in tests/system/slurm/test_slots_reservations.py).
"""

from __future__ import annotations

import time

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import BusyError
from aliquot.slurm.client.models import SlurmReservation
from aliquot.slurm.node.context import SlurmChangeContext

PREFIX, RESTART_PREFIX = "aliquot-", "aliquot.restart-"
"""The names of Aliquot's reservations begin with one of them: of a node that changes, and of the others meanwhile."""
MINUTES = 5
"""Duration of the reservation before anything changes."""
SPARE_S = 60.0
"""Seconds that must be left of it when it is extended, so that it cannot have ended in between."""
LONGEST_S = 1800.0
"""Seconds within which a change ends, if all its commands take as long as they may."""
_HELD_S = 86400
"""A reservation of at least a day is one that was extended."""


def name(node: str) -> str:
    """Return the name of the reservation, one per node, so that a later change finds it."""
    return f"{PREFIX}{node}"


def close(node: str, context: SlurmChangeContext) -> float:
    """Reserve the node, and return when, by the context's clock. Raises SlurmError.

    The reservation of an interrupted change stays if it lasts. Otherwise it could end at any time, so it is renewed.
    """
    found = _own(node, context)
    if found is None or not _lasts(found):
        if found is not None:
            context.slurm.delete_reservation(name(node))
        context.slurm.reserve(name(node), node, MINUTES)
    return context.now()


def hold(node: str, closed_at: float, context: SlurmChangeContext) -> None:
    """Let the reservation last until the change has ended.

    Raises BlockedError if it may have ended in between, or if Slurm does not keep it.
    """
    if context.now() - closed_at > MINUTES * 60 - SPARE_S:
        raise BlockedError(
            f"the look at the jobs of {node} took more than {MINUTES - SPARE_S / 60:g} minutes: jobs may have started",
            next_step="scontrol ping",
            code="GATE_TOO_LATE",
        )
    context.slurm.extend_reservation(name(node))
    if not is_held(node, context):
        raise BlockedError(
            f"Slurm does not keep reservation {name(node)} until the change has ended",
            details=("Without it, a job could start on a slot while it changes.",),
            next_step=f"scontrol show reservation {name(node)}",
            code="GATE_OPEN",
        )


def refuse_maintenance(nodes: tuple[str, ...], context: SlurmChangeContext) -> None:
    """Raise BusyError if jobs of a site's reservation for maintenance could start on nodes before the change has ended.

    Reservations of Aliquot are never a job's.
    """
    now = time.time()
    for each in context.slurm.reservations():
        there = [node for node in nodes if node in each.nodes]
        harmless = each.name.startswith((PREFIX, RESTART_PREFIX)) or not there or "MAINT" not in each.flags
        if harmless or each.start > now + MINUTES * 60 + LONGEST_S or 0 < each.end <= now:
            continue
        raise BusyError(
            f"reservation {each.name} is for maintenance: its jobs could start on {there[0]} during the change",
            details=("A node that changes as a whole is drained first, which keeps such jobs away.",),
            next_step=f"scontrol show reservation {each.name}",
        )


def is_closed(node: str, context: SlurmChangeContext) -> bool:
    """Report whether the reservation exists, for a moment or until the change has ended."""
    return _own(node, context) is not None


def is_held(node: str, context: SlurmChangeContext) -> bool:
    """Report whether no job can start on the node until the change has ended."""
    found = _own(node, context)
    return found is not None and _lasts(found)


def open_again(node: str, context: SlurmChangeContext) -> None:
    """Delete the reservation, if there is one, and let Slurm schedule at once."""
    context.slurm.delete_reservation(name(node))
    # An update of the node triggers a scheduling cycle, and jobs need not wait for the next one.
    context.slurm.note(node, context.slurm.node(node).extra)


def _own(node: str, context: SlurmChangeContext) -> SlurmReservation | None:
    return next((each for each in context.slurm.reservations() if each.name == name(node)), None)


def _lasts(reservation: SlurmReservation) -> bool:
    closed = {"MAINT", "IGNORE_JOBS"} <= set(reservation.flags)
    return closed and reservation.end - reservation.start >= _HELD_S
