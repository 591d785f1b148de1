"""``aliquot verify``: compare the host with the desired state."""

from __future__ import annotations

from aliquot.cli.framework import desired_args, output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    from aliquot.core.planner.verify import verify

    config = desired_args.config_from_args(args)
    inventory = node.inventory(args)
    desired = desired_args.read(args, config, inventory)
    desired_args.refuse_errors(desired)
    drift = verify(inventory, desired)
    document = output.build("Verification", node=inventory.node, ok=not drift, drift=drift, notes=desired.notes)
    if args.output == "text":
        for line in desired.notes:
            streams.note(f"note: {line}")
    if args.output == "markdown":
        from aliquot.cli.views import ticket

        step = desired_args.command_line(args, "plan") or ""
        streams.result(ticket.verification(inventory, drift, desired.name, desired.notes, step))
        return 30 if drift else 0
    what = f'"{desired.name}"' if desired.name else "the desired state"
    lines = [f"drift: {d.message}" for d in drift] or [f"{inventory.node} matches {what}"]
    output.emit(document, args.output, "\n".join(lines))
    if drift and args.output == "text":
        command = desired_args.command_line(args, "plan")
        if command:
            streams.note(f"next     {command}")
    return 30 if drift else 0
