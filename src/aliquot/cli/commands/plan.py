"""``aliquot plan``: what would change. Reads, computes and prints; touches nothing."""

from __future__ import annotations

import shlex

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import next_command as following
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import plan_view as planview
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary


def run(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    config = desired_args.config_from_args(args)
    inventory = node.inventory(args)
    made = plan(inventory, desired_args.read(args, config, inventory), policy)
    if args.out and not made.blocked:
        from aliquot.cli.framework import owned_files

        owned_files.save(args.out, output.encoded(output.document(made), "json") + "\n", force=args.force)
    return show(made, inventory, args)


def show(plan: Plan, inventory: Inventory, args: Args, command: str | None = None) -> int:
    """Prints a plan, or why there is none. ``command`` carries it out; made from the wish if not given. Returns 0
    nothing to do, 10 changes, 20 blocked.
    """
    from aliquot.cli.framework import color as colour

    if args.output == "markdown":
        return _ticket(plan, inventory, args)
    if args.output != "text":
        output.emit(output.document(plan), args.output, "")
        return 20 if plan.blocked else 10 if plan.changes else 0
    for line in plan.notes:
        streams.note(f"note: {line}")
    if plan.blocked:
        streams.note(planview.blockers(plan, args.typed_node))
        return 20
    streams.result(planview.text(plan, inventory, colour.wanted()) if plan.changes else summary.plan_text(plan))
    if plan.changes:
        if command is None:
            command = (
                f"aliquot apply {args.out}" if getattr(args, "out", None) else desired_args.command_line(args, "apply")
            )
        if command:
            streams.note(f"next     {following.addressed(command, args.typed_node)}")
    return 10 if plan.changes else 0


def _ticket(plan: Plan, inventory: Inventory, args: Args) -> int:
    """As ``show``, for a ticket: a refusal is a result, too."""
    from aliquot.cli.views import ticket

    commands = []
    if args.out:
        commands = [following.addressed(shlex.join(["aliquot", "apply", args.out]), args.typed_node)]
    elif (again := desired_args.command_line(args, "plan")) is not None:
        saved = shlex.join([*shlex.split(again), "--out", "plan.json"])
        commands = [saved, following.addressed("aliquot apply plan.json", args.typed_node)]
    streams.result(ticket.plan(plan, inventory, commands, args.typed_node))
    return 20 if plan.blocked else 10 if plan.changes else 0
