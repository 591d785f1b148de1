"""The slots that running jobs have, as Slurm counts them, and the same as holders of the GPUs' instances."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from aliquot.core.model.claims import Claim, with_claims
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode
from aliquot.slurm.holders.jobs import JOB
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import SlotUse
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import offered_by_node
from aliquot.slurm.node.request import SlurmNodeSettings

READ_S = 20.0
"""Seconds within which Slurm has to name the slots. It does not between its restart and the node's registration."""


def used_slots(name: str, context: SlurmChangeContext) -> tuple[SlotUse, ...]:
    """Return the slots that jobs have on a node.

    Raises BlockedError if Slurm does not name the slots of a job: none of them may change then.
    """
    unnamed: tuple[str, ...] = ()
    for _ in waiting.turns(context, READ_S):
        node, jobs = context.slurm.node(name), context.slurm.jobs(name)
        unnamed = tuple(_unnamed(node, jobs))
        if not unnamed:
            return _by_slot(node, jobs)
    raise BlockedError(
        f"Slurm does not name the slots of {unnamed[0]} on {name}",
        code="UNKNOWN_SLOT",
        details=unnamed[1:],
        next_step=f"scontrol -d show node {name}",
    )


def with_jobs(inventory: Inventory, settings: SlurmNodeSettings, used: Iterable[SlotUse]) -> Inventory:
    """Return the inventory with the devices of used slots held by their jobs, whether these run a process or not.

    Raises BlockedError for a used slot whose device has no UUID, because no plan could spare it.
    """
    used = tuple(used)
    if not used:
        return inventory
    devices = offered_by_node(inventory, settings).devices
    claims = []
    for each in used:
        device = devices[each.slot] if each.slot < len(devices) else None
        if device is None or (device.pci and not device.uuid):
            raise BlockedError(
                f"slot {each.slot} has a job, but its device is unknown", code="UNKNOWN_SLOT", next_step="aliquot show"
            )
        names = each.jobs or ("unknown",)
        claims += [Claim(Holder(JOB, f"slurm:{job}"), (device.uuid,)) for job in names if device.uuid]
    return with_claims(inventory, claims)


def jobs_among(holders: Iterable[Holder]) -> tuple[int, ...]:
    """Return the numbers of the jobs among holders, ascending."""
    ids = (holder.id.rpartition(":")[2] for holder in holders if holder.kind == JOB)
    return tuple(sorted({int(number) for number in ids if number.isdecimal()}))


def jobs_of(used: Iterable[SlotUse], slots: Collection[int]) -> tuple[int, ...]:
    """Return the numbers of the jobs that have any of some slots, ascending."""
    return tuple(sorted({job for each in used if each.slot in slots for job in each.jobs}))


def _gpus(name: str, job: SlurmJob) -> Iterator[Gres]:
    return (gres for node, gres in job.allocated if node == name and gres.name == "gpu" and gres.count)


def _unnamed(node: SlurmNode, jobs: Iterable[SlurmJob]) -> Iterator[str]:
    """Yield jobs, and the node itself, for which Slurm reports fewer slots than it counts."""
    for job in jobs:
        if any(len(gres.index) != gres.count for gres in _gpus(node.name, job)):
            yield f"job {job.id}"
    if any(len(gres.index) != gres.count for gres in node.gres_used if gres.name == "gpu" and gres.count):
        yield "its jobs"


def _by_slot(node: SlurmNode, jobs: Iterable[SlurmJob]) -> tuple[SlotUse, ...]:
    found: dict[int, set[int]] = {
        slot: set() for gres in node.gres_used if gres.name == "gpu" and gres.count for slot in gres.index
    }
    for job in jobs:
        for gres in _gpus(node.name, job):
            for slot in gres.index:
                found.setdefault(slot, set()).add(job.id)
    return tuple(SlotUse(slot, tuple(sorted(numbers))) for slot, numbers in sorted(found.items()))
