"""``aliquot plan``: print what would change, without changing anything."""

from __future__ import annotations

import shlex

from aliquot.cli.framework import desired_args, file_output, output, streams
from aliquot.cli.framework import next_command as next_commands
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.cli.framework.vm_references import with_vms
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary
from aliquot.errors import UsageError


def run(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    path = _target(args)
    policy = desired_args.policy(args)
    config = desired_args.config_from_args(args)
    inventory = node.inventory(args)
    made = with_vms(plan(inventory, desired_args.read(args, config, inventory), policy), args)
    if path and not made.blocked:
        from aliquot.cli.framework import owned_files

        owned_files.save(path, output.encoded(output.document(made), "json") + "\n", force=args.force)
    if args.out == "-" and not made.blocked:
        args.output = "json"
    return show(made, inventory, args)


def _target(args: Args) -> str:
    """Return the file for the plan, or "" for none. Raises UsageError for two forms of the plan on stdout."""
    if args.out == "-" and args.output not in ("text", "json"):
        raise UsageError(
            f"--out - prints the plan as JSON: -o {args.output} is not possible beside it",
            next_step=f"{args.prog} --help",
        )
    return file_output.target(args)


def show(plan: Plan, inventory: Inventory, args: Args, command: str | None = None) -> int:
    """Print a plan, or why it is blocked. Returns 0 for nothing to do, 10 for changes, 20 for blocked.

    ``command`` applies the plan. The default repeats the request of the command line.
    """
    from aliquot.cli.framework import color as colors

    if args.output == "markdown":
        return _ticket(plan, inventory, args)
    if args.output != "text":
        output.emit(output.document(plan), args.output, "")
        return 20 if plan.blocked else 10 if plan.changes else 0
    for line in plan.notes:
        streams.note(f"note: {line}")
    if plan.blocked:
        streams.error(plan_views.blockers(plan, args.typed_node, each=getattr(args, "each", False)))
        return 20
    streams.result(
        plan_views.text(plan, inventory, colors.wanted(), each=args.each) if plan.changes else summary.plan_text(plan)
    )
    if plan.changes:
        if command is None:
            command = (
                shlex.join(["aliquot", "apply", args.out])
                if getattr(args, "out", None)
                else desired_args.command_line(args, "apply")
            )
        if command:
            streams.note(f"next     {next_commands.addressed(command, args.typed_node)}")
    return 10 if plan.changes else 0


def _ticket(plan: Plan, inventory: Inventory, args: Args) -> int:
    """Print a plan as a ticket. A blocked plan is also a result, on stdout."""
    from aliquot.cli.views import ticket

    commands = []
    if args.out:
        commands = [next_commands.addressed(shlex.join(["aliquot", "apply", args.out]), args.typed_node)]
    elif (again := desired_args.command_line(args, "plan")) is not None:
        saved = shlex.join([*shlex.split(again), "--out", "plan.json"])
        commands = [saved, next_commands.addressed("aliquot apply plan.json", args.typed_node)]
    streams.result(ticket.plan(plan, inventory, commands, args.typed_node))
    return 20 if plan.blocked else 10 if plan.changes else 0
