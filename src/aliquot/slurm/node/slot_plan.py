"""The plan for the idle slots of a board: what of a request can change now without touching a slot that a job has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.errors import BlockedError
from aliquot.slurm.files.slot_board import changed_slots, first_slots, slots
from aliquot.slurm.node.change_record import ChangeRecord, ExpectedGres, SlotUse
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.gpu_plan import foretold
from aliquot.slurm.node.slot_use import jobs_among, jobs_of, with_jobs
from aliquot.slurm.node.waits import HELD


class SlotPlan(msgspec.Struct, frozen=True):
    """The part of a request that can change now."""

    desired: Desired
    """The GPUs that can change."""
    plan: Plan
    expected: ExpectedGres
    """The board after the plan."""
    dropped: tuple[str, ...] = ()
    """Why a GPU cannot change, in a sentence each."""
    jobs: tuple[int, ...] = ()
    """The jobs because of which they cannot."""


def slot_plan(record: ChangeRecord, inventory: Inventory, used: tuple[SlotUse, ...]) -> SlotPlan:
    """Return what of a change is possible while jobs have ``used`` slots.

    A GPU is dropped if an instance on which a job runs would have to go. Raises BlockedError if a GPU cannot change for
    another reason, or if the record of a used slot would change although no GPU of the request has it.
    """
    held = with_jobs(inventory, record.change.settings, used)
    after, accepted, dropped, blocking = held, [], [], set()
    for wanted in record.change.desired.gpus:
        made = plan(held, replace(record.change.desired, gpus=(wanted,)), _policy(record))
        predicted = foretold(after, made)
        gpu = held.gpu(wanted.pci)
        own = _slots_of(gpu, held, record)
        touched = _touched(record, predicted, used) & own
        if made.blocked or touched:
            _refuse_other_blockers(made)
            blocking |= {*jobs_of(used, touched), *jobs_among(h for b in made.blockers for h in b.holders)}
            dropped.append(f"GPU {gpu.index} stays as it is: {_why(made, touched, used)}")
            continue
        after = predicted
        accepted.append(wanted)
    desired = replace(record.change.desired, gpus=tuple(accepted))
    _refuse_touched(record, after, used)
    return SlotPlan(
        desired,
        plan(held, desired, _policy(record)),
        expected_gres(after, record.change.settings, record.version),
        tuple(dropped),
        tuple(sorted(blocking)),
    )


def needs_reset(desired: Iterable[DesiredGpu], inventory: Inventory) -> bool:
    """Report whether a GPU changes its MIG mode, for which its driver's clients (slurmd may be one) have to stop."""
    modes = {gpu.pci: gpu.mig for gpu in inventory.gpus}
    return any(
        wanted.mig is not None and wanted.pci in modes and (wanted.mig is not modes[wanted.pci].enabled)
        for wanted in desired
    )


def _policy(record: ChangeRecord) -> Policy:
    """Return the policy for holders: whatever the request says, no job of Slurm loses its instance."""
    return Policy(reset=record.change.policy.reset)


def _slots_of(gpu: Gpu, inventory: Inventory, record: ChangeRecord) -> set[int]:
    first = first_slots(inventory, record.change.settings.gpus or None)[gpu.pci]
    return set(range(first, first + slots(inventory, gpu)))


def _touched(record: ChangeRecord, after: Inventory, used: Sequence[SlotUse]) -> set[int]:
    """Return the used slots whose records would differ from those that Slurm has."""
    lines = expected_gres(after, record.change.settings, record.version).lines
    return {each.slot for each in used} & set(changed_slots(record.restore_point.lines, lines))


def _refuse_other_blockers(made: Plan) -> None:
    """Raise BlockedError for blockers other than holders: waiting for jobs would not remove them."""
    other = [blocker for blocker in made.blockers if blocker.rule != HELD]
    if other:
        raise BlockedError(
            other[0].message,
            code=other[0].rule,
            details=tuple(blocker.message for blocker in other[1:]),
            next_step=other[0].next_step,
        )


def _refuse_touched(record: ChangeRecord, after: Inventory, used: tuple[SlotUse, ...]) -> None:
    touched = _touched(record, after, used)
    if touched:
        slot = min(touched)
        jobs = ", ".join(f"job {number}" for number in jobs_of(used, touched)) or "a job"
        last = slot == len(record.restore_point.lines) - 1
        what = "the record of the unused capabilities" if last else f"slot {slot}, which is not what Slurm believes"
        raise BlockedError(
            f"{jobs} has {what}, so nothing of {record.name} can change beside it",
            details=("Only a request without a type, or for the type pad, gets such a record.",) if last else (),
            next_step=f"squeue --nodelist={record.name}",
            code="PAD_IN_USE",
        )


def _why(made: Plan, touched: set[int], used: Sequence[SlotUse]) -> str:
    if made.blockers:
        return made.blockers[0].message
    numbers = ", ".join(map(str, jobs_of(used, touched)))
    return f"job {numbers or 'unknown'} has slot {', '.join(map(str, sorted(touched)))}"
