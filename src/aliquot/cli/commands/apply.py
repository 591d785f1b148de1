"""``aliquot apply``: apply a desired state or a saved plan, and prove the result by reading the GPUs again."""

from __future__ import annotations

from aliquot.cli.commands.apply_plan import PlanExecution, execute
from aliquot.cli.framework import desired_args
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def run(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    if args.plan:
        return _apply_saved(args)
    config = desired_args.config_from_args(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = plan(inventory, desired_args.read(args, config, inventory), policy)
        return execute(PlanExecution(connection, made, inventory), args)


def _apply_saved(args: Args) -> int:
    """Apply a plan from a file, if the planner makes the same one."""
    from aliquot.core.planner.saved_plan import confirm

    if desired_args.has_desired(args) or args.policy != "refuse":
        raise UsageError(
            "a saved plan is applied as it is: it cannot be combined with -f, -c, --gpu, --mig, --add, --remove, "
            "--vgpu, --mixed-size, --passthrough, --mode-only or --policy",
            next_step=f"aliquot apply {args.plan}",
        )
    saved = desired_args.saved_plan(args.plan)
    with node.connected(args) as connection:
        return execute(PlanExecution(connection, saved, connection.backend.read(), check=confirm), args)
