"""``aliquot restore``: plan and apply a checkpoint, or after a boot the last requested state of each GPU."""

from __future__ import annotations

from aliquot.cli.commands.apply_plan import PlanExecution, execute
from aliquot.cli.framework import desired_args, output
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def run(args: Args) -> int:
    if args.boot == bool(args.checkpoint):
        raise UsageError("restore takes a checkpoint file, or --boot", next_step=f"{args.prog} --help")
    if args.boot:
        from aliquot.cli.commands import restore_boot as boot

        return boot.run(args)
    from aliquot.core.config.formats.checkpoint import restore
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    text = output.read_text(args.checkpoint, "checkpoint")
    source = "the checkpoint on stdin" if args.checkpoint == "-" else f"the checkpoint {args.checkpoint}"
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = plan(inventory, restore(text, inventory, source), policy)
        return execute(PlanExecution(connection, made, inventory), args)
