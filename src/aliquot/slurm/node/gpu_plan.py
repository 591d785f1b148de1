"""The plan for a Slurm node's GPUs, and the check that it is feasible."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.errors import BlockedError, UsageError
from aliquot.slurm.holders.jobs import JOB
from aliquot.slurm.holders.steps import JobSteps
from aliquot.slurm.node.request import SlurmChange


def feasible(change: SlurmChange, inventory: Inventory) -> Plan:
    """Return the plan for the GPUs.

    Raises BlockedError if the plan is blocked or needs a reboot. Raises UsageError for GPUs that the Slurm node does
    not offer.
    """
    settings = change.settings
    foreign = [w.pci for w in change.desired.gpus if settings.gpus and w.pci not in settings.gpus]
    if foreign:
        raise UsageError(
            f"{settings.name} does not offer GPU {foreign[0]}: another Slurm node has it",
            details=tuple(f"It does not offer GPU {pci} either." for pci in foreign[1:]),
            next_step="remove that GPU from the request, or name it with --capacity",
        )
    made = plan(inventory, change.desired, change.policy)
    if made.blocked:
        first, *rest = made.blockers
        raise BlockedError(
            first.message, code=first.rule, details=tuple(b.message for b in rest), next_step=first.next_step
        )
    if made.reboots:
        raise BlockedError(
            f"MIG mode of GPU {', '.join(made.reboots)} changes only with a reboot",
            code="NEEDS_REBOOT",
            details=("Set the mode first (aliquot apply --mode-only), then let Slurm reboot the node.",),
            next_step=f"scontrol reboot ASAP nextstate=RESUME reason='aliquot: MIG mode' {settings.name}",
        )
    return made


def freed(inventory: Inventory, jobs: Collection[int] | None = None) -> Inventory:
    """Return the GPUs as if they were not held; with ``jobs`` as if only these jobs had ended."""
    return replace(inventory, gpus=tuple(_freed(gpu, _ends(jobs)) for gpu in inventory.gpus))


def _ends(jobs: Collection[int] | None) -> Callable[[Holder], bool]:
    """Return a test whether a holder ends with these jobs: it is their claim, or a process of one of their steps."""
    if jobs is None:
        return lambda _: True
    numbers = {str(job) for job in jobs}
    steps = JobSteps("/proc")

    def ends(holder: Holder) -> bool:
        if holder.kind == JOB:
            return holder.id.rpartition(":")[2] in numbers
        return holder.id.isdecimal() and steps.job_of(int(holder.id)) in numbers

    return ends


def _freed(gpu: Gpu, ends: Callable[[Holder], bool]) -> Gpu:
    return replace(gpu, holders=_left(gpu.holders, ends), instances=tuple(_free(i, ends) for i in gpu.instances))


def _free(instance: GpuInstance, ends: Callable[[Holder], bool]) -> GpuInstance:
    compute = tuple(replace(c, holders=_left(c.holders, ends)) for c in instance.compute_instances)
    holders = _left(instance.holders, ends)
    return replace(instance, held=bool(holders), holders=holders, compute_instances=compute)


def _left(holders: tuple[Holder, ...], ends: Callable[[Holder], bool]) -> tuple[Holder, ...]:
    return tuple(holder for holder in holders if not ends(holder))


def foretold(inventory: Inventory, made: Plan) -> Inventory:
    """Predict the GPUs after a plan, with the capability minors of new instances."""
    for action in made.actions:
        inventory = step(inventory, action)
    return replace(inventory, gpus=tuple(map(_numbered, inventory.gpus)))


def _numbered(gpu: Gpu) -> Gpu:
    """Set the capability minors of a GPU's instances by the kernel's formula; see ``files.job_devices``."""
    found = []
    for instance in gpu.instances:
        first = 3 + 135 * gpu.minor + 9 * instance.id
        inside = tuple(replace(c, capability_minor=first + 1 + c.id) for c in instance.compute_instances)
        found.append(replace(instance, capability_minor=first, compute_instances=inside))
    return replace(gpu, instances=tuple(found))
