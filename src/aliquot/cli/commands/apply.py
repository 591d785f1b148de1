"""``aliquot apply``: carry out a wish or a saved plan, and prove by a fresh read that it happened."""

from __future__ import annotations

from aliquot.cli.framework import desired_args as wish
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.apply_plan import Job, carry_out
from aliquot.cli.framework.parser import Args
from aliquot.core.model.plan import Plan
from aliquot.errors import UsageError


def run(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    policy = wish.policy(args)
    saved = _saved(args) if args.plan else None
    config = None if saved else wish.stated(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = saved or plan(inventory, wish.read(args, config, inventory), policy)
        return carry_out(Job(connection, made, inventory, saved=saved is not None), args)


def _saved(args: Args) -> Plan:
    if wish.typed(args) or args.policy != "refuse":
        raise UsageError(
            "a saved plan is carried out as it is: no -f, -c, --gpu, --mig, --vgpu, --mixed-size, --passthrough, "
            "--mode-only or --policy beside it",
            next_step=f"aliquot apply {args.plan}",
        )
    return wish.saved_plan(args.plan)
