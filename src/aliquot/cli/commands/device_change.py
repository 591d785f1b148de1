"""A change of named devices (``vgpu enable``, ``passthrough disable``), planned and applied as any other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from aliquot.cli.commands import plan as planning
from aliquot.cli.commands.apply_plan import PlanExecution, execute
from aliquot.cli.framework import desired_args
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.vm_references import with_vms
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory


def change(args: Args, words: Sequence[str], make_desired: Callable[[Inventory], Iterable[DesiredGpu]]) -> int:
    """Plan a change and apply it, or show it with ``--dry-run``. ``words`` were typed for the devices."""
    from aliquot.core.planner.plan import plan

    policy = desired_args.policy(args)
    with node.connected(args) as connection:
        inventory = connection.backend.read()
        desired = Desired(tuple(make_desired(inventory)), name=args.prog.removeprefix("aliquot "))
        made = plan(inventory, desired, policy)
        if args.dry_run:
            return planning.show(
                with_vms(made, args), inventory, args, shlex.join([*args.prog.split(), *words, *_policy(args)])
            )
        return execute(PlanExecution(connection, made, inventory), args)


def _policy(args: Args) -> list[str]:
    if args.policy == "refuse":
        return []
    return ["--policy", args.policy, *(["--timeout", str(args.timeout)] if args.policy == "wait" else [])]
