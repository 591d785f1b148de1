"""``aliquot plan``: what would change. Reads, computes and prints; touches nothing."""

from __future__ import annotations

from aliquot.cli import following, node, output, planview, streams, wish
from aliquot.cli.parse import Args
from aliquot.model.inventory import Inventory
from aliquot.model.plan import Plan


def run(args: Args) -> int:
    from aliquot.planner.planning import plan

    policy = wish.policy(args)
    config = wish.stated(args)
    inventory = node.inventory(args)
    made = plan(inventory, wish.read(args, config, inventory), policy)
    if args.out and not made.blocked:
        output.save(args.out, output.encoded(output.document(made), "json") + "\n")
    return show(made, inventory, args)


def show(plan: Plan, inventory: Inventory, args: Args, command: str | None = None) -> int:
    """Prints a plan, or why there is none. ``command`` carries it out; made from the wish if not given. Returns 0
    nothing to do, 10 changes, 20 blocked.
    """
    from aliquot.cli import colour

    if args.output != "text":
        output.emit(output.document(plan), args.output, "")
        return 20 if plan.blocked else 10 if plan.changes else 0
    for line in plan.notes:
        streams.note(f"note: {line}")
    if plan.blocked:
        streams.note(planview.blockers(plan, args.typed_node))
        return 20
    streams.result(planview.text(plan, inventory, colour.wanted()) if plan.changes else planview.figures(plan))
    if plan.changes:
        if command is None:
            command = f"aliquot apply {args.out}" if getattr(args, "out", None) else wish.words(args, "apply")
        if command:
            streams.note(f"next     {following.addressed(command, args.typed_node)}")
    return 10 if plan.changes else 0
