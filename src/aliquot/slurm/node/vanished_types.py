"""GRES types that a change has taken from the whole cluster: what pending jobs ask for in vain."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.errors import AliquotError
from aliquot.slurm.client.models import Gres
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext


def vanished_types(record: ChangeRecord, context: SlurmChangeContext) -> tuple[str, ...]:
    """A sentence for the types that the change took away and that no record of the cluster has any more: Slurm holds a
    pending job that asks for one (BadConstraints), and does not let it go by itself. None where Slurm does not answer.
    """
    gone = _types(record.restore_point.gres) - _types(record.expected.gres)
    if not gone:
        return ()
    try:
        gone -= {kind for node in context.slurm.nodes() for kind in _types(node.gres)}
    except AliquotError:
        return ()
    if not gone:
        return ()
    return (
        f"no node has {', '.join(sorted(gone))} now: Slurm may hold jobs that ask for it; "
        "'squeue --states=PENDING --Format=JobID,UserName,tres-per-node,tres-per-job,Reason' shows them, and "
        "'scontrol release JOB' lets one go when a node has it again",
    )


def _types(gres: Iterable[Gres]) -> set[str]:
    return {each.type for each in gres if each.name == "gpu" and each.type}
