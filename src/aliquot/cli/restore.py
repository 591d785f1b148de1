"""``aliquot restore``: bring back the state of a checkpoint, by the same plan and apply as everything else."""

from __future__ import annotations

from aliquot.cli import node, output, wish
from aliquot.cli.doing import Job, carry_out
from aliquot.cli.parse import Args


def run(args: Args) -> int:
    from aliquot.config.checkpoint import restore
    from aliquot.planner.planning import plan

    policy = wish.policy(args)
    text = output.read_text(args.checkpoint, "checkpoint")
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        made = plan(inventory, restore(text, inventory), policy)
        return carry_out(Job(connection, made, inventory), args)
