"""``aliquot verify``: does the machine match the wish?"""

from __future__ import annotations

from aliquot.cli.framework import desired_args as wish
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    from aliquot.core.planner.verify import verify

    config = wish.stated(args)
    inventory = node.inventory(args)
    desired = wish.read(args, config, inventory)
    wish.refuse_faults(desired)
    drift = verify(inventory, desired)
    document = output.made("Verification", node=inventory.node, ok=not drift, drift=drift, notes=desired.notes)
    if args.output == "text":
        for line in desired.notes:
            streams.note(f"note: {line}")
    if args.output == "markdown":
        from aliquot.cli.views import ticket

        step = wish.words(args, "plan") or ""
        streams.result(ticket.verification(inventory, drift, desired.name, desired.notes, step))
        return 30 if drift else 0
    what = f'"{desired.name}"' if desired.name else "the wish"
    lines = [f"drift: {d.message}" for d in drift] or [f"{inventory.node} matches {what}"]
    output.emit(document, args.output, "\n".join(lines))
    if drift and args.output == "text":
        command = wish.words(args, "plan")
        if command:
            streams.note(f"next     {command}")
    return 30 if drift else 0
