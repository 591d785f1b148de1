"""The plan for a Slurm node's GPUs, and whether it can be made at all."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.agent.slurm.change import Change
from aliquot.errors import BlockedError, UsageError
from aliquot.model.inventory import GpuInstance, Inventory
from aliquot.model.plan import Plan
from aliquot.planner.planning import plan


def feasible(change: Change, inventory: Inventory) -> Plan:
    """The plan for the GPUs. Raises BlockedError for one that is blocked, or waits for a reboot, UsageError for GPUs
    that the Slurm node does not offer.
    """
    settings = change.settings
    strange = [w.pci for w in change.desired.gpus if settings.gpus and w.pci not in settings.gpus]
    if strange:
        raise UsageError(
            f"{settings.name} does not offer GPU {strange[0]}: another Slurm node has it",
            details=tuple(f"it does not offer GPU {pci} either" for pci in strange[1:]),
            next_step="leave that GPU out of the wish, or name it with --offers",
        )
    made = plan(inventory, change.desired, change.policy)
    if made.blocked:
        first, *rest = made.blockers
        error = BlockedError(first.message, details=tuple(b.message for b in rest), next_step=first.next_step)
        error.code = first.rule
        raise error
    if made.reboots:
        raise BlockedError(
            f"MIG mode of GPU {', '.join(made.reboots)} changes only with a reboot",
            details=("set the mode first (aliquot apply --mode-only), and let Slurm reboot the node",),
            next_step=f"scontrol reboot ASAP nextstate=RESUME reason='aliquot: MIG mode' {settings.name}",
        )
    return made


def freed(inventory: Inventory) -> Inventory:
    """The GPUs as if nobody was on them."""
    return replace(
        inventory,
        gpus=tuple(replace(g, holders=(), instances=tuple(map(_free, g.instances))) for g in inventory.gpus),
    )


def _free(instance: GpuInstance) -> GpuInstance:
    compute = tuple(replace(c, holders=()) for c in instance.compute_instances)
    return replace(instance, held=False, holders=(), compute_instances=compute)
