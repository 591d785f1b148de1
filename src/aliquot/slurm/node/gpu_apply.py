"""Partitions the GPUs of a Slurm node through the engine, and creates their device nodes."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Policy
from aliquot.errors import BlockedError, LockedError, StalePlanError
from aliquot.slurm.node import device_nodes as devices
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.request import SlurmNodeSettings
from aliquot.slurm.node.slot_use import with_jobs

_REBOOT = "set the mode with: aliquot apply --mode-only; reboot the node, then run the command again"

TURN_S = 60.0
"""Seconds to wait for another change of this host's GPUs."""


def partition_gpus(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Partition the GPUs, create their device nodes, and return the record with the expected GRES.

    Raises AliquotError.
    """
    inventory = _changed(record, context)
    settings = record.goal_settings
    expected = expected_gres(inventory, settings, record.version)
    made_nodes = devices.make(
        named_gpus(inventory, settings),
        settings.dev_root,
        simulated=context.folders.simulated,
        fence=settings.fence,
        records=len(expected.devices) if settings.slots else 0,
    )
    if made_nodes:
        context.report(f"created {len(made_nodes)} device nodes")
    return replace(record, expected=expected)


def named_gpus(inventory: Inventory, settings: SlurmNodeSettings) -> tuple[Gpu, ...]:
    """Return the GPUs in the node's lines: those that it offers, and if it denies access to others, all of the host."""
    every = not settings.gpus or settings.fence or settings.slots
    return tuple(g for g in inventory.gpus if every or g.pci in settings.gpus)


def _changed(record: ChangeRecord, context: SlurmChangeContext) -> Inventory:
    """Apply the plan, and return the inventory after it.

    Retries for ``TURN_S`` seconds while another Slurm node of this host, or another command, changes the GPUs. Raises
    AliquotError.
    """
    desired = record.restore_point.desired if record.undoing else record.change.desired
    begin = context.now()
    while True:
        try:
            return _planned(desired, record, context)
        except (LockedError, StalePlanError) as busy:
            if context.now() - begin > TURN_S:
                raise
            context.report(f"waiting for another change of the GPUs: {busy.brief}")
            context.sleep(waiting.SLOW_S)


def _planned(desired: Desired, record: ChangeRecord, context: SlurmChangeContext) -> Inventory:
    from aliquot.core.engine.apply import apply
    from aliquot.core.planner.plan import plan

    inventory = context.gpus.backend.read()
    policy = Policy() if record.undoing or record.beside_jobs else record.change.policy
    # A job that runs no process is not visible on the host, but Slurm has named its slots.
    held = with_jobs(inventory, record.goal_settings, record.used_slots)
    made = plan(held, desired, policy) if desired.gpus else None
    if made is None or not (made.changes or made.blocked):
        return inventory
    if made.reboots:
        raise BlockedError(
            f"MIG mode of GPU {', '.join(made.reboots)} now changes only with a reboot",
            code="NEEDS_REBOOT",
            next_step=_REBOOT,
        )
    outcome = apply(made, context.gpus, context.report)
    if outcome.error is not None:
        raise outcome.error
    if outcome.status == "reboot":
        raise BlockedError(
            "the change of the GPUs takes effect only after a reboot", code="NEEDS_REBOOT", next_step=_REBOOT
        )
    return outcome.inventory
