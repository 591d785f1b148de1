"""One GPU's wish, made by a verb (``vgpu enable``, ``passthrough disable``) and planned, shown or done as any other."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from aliquot.cli import node, wish
from aliquot.cli import plan as planning
from aliquot.cli.doing import Job, carry_out
from aliquot.cli.parse import Args
from aliquot.model.desired import Desired, GpuWish
from aliquot.model.inventory import Inventory


def change(args: Args, word: str, wished: Callable[[Inventory], GpuWish]) -> int:
    """Plans a wish and carries it out, or shows it with ``--dry-run``. ``word`` is what was typed for the device."""
    from aliquot.planner.planning import plan

    policy = wish.policy(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        desired = Desired((wished(inventory),), name=args.prog.removeprefix("aliquot "))
        made = plan(inventory, desired, policy)
        if args.dry_run:
            return planning.show(made, inventory, args, shlex.join([*args.prog.split(), word, *_policy(args)]))
        return carry_out(Job(connection, made, inventory), args)


def _policy(args: Args) -> list[str]:
    if args.policy == "refuse":
        return []
    return ["--policy", args.policy, *(["--timeout", str(args.timeout)] if args.policy == "wait" else [])]
