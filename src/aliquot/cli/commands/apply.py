"""``aliquot apply``: carry out a wish or a saved plan, and prove by a fresh read that it happened."""

from __future__ import annotations

from aliquot.cli.framework import desired_args
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.apply_plan import PlanExecution, execute
from aliquot.cli.framework.parser import Args
from aliquot.core.model.plan import Plan
from aliquot.errors import UsageError


def run(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    saved = _saved(args) if args.plan else None
    config = None if saved else desired_args.config_from_args(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = saved or plan(inventory, desired_args.read(args, config, inventory), policy)
        return execute(PlanExecution(connection, made, inventory, saved=saved is not None), args)


def _saved(args: Args) -> Plan:
    if desired_args.has_desired(args) or args.policy != "refuse":
        raise UsageError(
            "a saved plan is carried out as it is: no -f, -c, --gpu, --mig, --vgpu, --mixed-size, --passthrough, "
            "--mode-only or --policy beside it",
            next_step=f"aliquot apply {args.plan}",
        )
    return desired_args.saved_plan(args.plan)
