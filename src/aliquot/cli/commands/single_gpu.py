"""One GPU's wish, made by a verb (``vgpu enable``, ``passthrough disable``) and planned, shown or done as any other."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from aliquot.cli.commands import plan as planning
from aliquot.cli.framework import desired_args
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.apply_plan import PlanExecution, execute
from aliquot.cli.framework.parser import Args
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory


def change(args: Args, word: str, make_desired: Callable[[Inventory], DesiredGpu]) -> int:
    """Plans a wish and carries it out, or shows it with ``--dry-run``. ``word`` is what was typed for the device."""
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        desired = Desired((make_desired(inventory),), name=args.prog.removeprefix("aliquot "))
        made = plan(inventory, desired, policy)
        if args.dry_run:
            return planning.show(made, inventory, args, shlex.join([*args.prog.split(), word, *_policy(args)]))
        return execute(PlanExecution(connection, made, inventory), args)


def _policy(args: Args) -> list[str]:
    if args.policy == "refuse":
        return []
    return ["--policy", args.policy, *(["--timeout", str(args.timeout)] if args.policy == "wait" else [])]
