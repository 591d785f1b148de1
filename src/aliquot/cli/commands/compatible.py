"""Parts that the command lines of NVIDIA's tools share: they apply or check one named config, without questions."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.commands import apply_plan
from aliquot.cli.framework import desired_args, streams
from aliquot.cli.framework.parser import Args
from aliquot.core.config.file import MIG_PARTED, NATIVE, VGPU_DEVICE_MANAGER
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.rendering import plan_summary as summary
from aliquot.errors import AliquotError, BlockedError, ConfigError, DriftError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile
    from aliquot.core.engine.ports import Hooks


_OWNERS = {MIG_PARTED: ("mig-configs", "aliquot mig-parted"), VGPU_DEVICE_MANAGER: ("vgpu-configs", "aliquot vgpu-dm")}
"""The key of each tool's files, and the command line that takes them."""


def config(args: Args, variable: str, schema: str) -> ConfigFile:
    """Load the config file, which may be for a whole fleet. ``variable`` is the one that may name it.

    Raises UsageError without a file, ConfigError with every error of the file, or if it is that of the other tool:
    ``schema`` is that of this one. A native file may have all kinds of share.
    """
    if not args.config_file:
        raise UsageError(f"no config file: give -f FILE or set {variable}", next_step=f"{args.prog} --help")
    found = desired_args.config_file(args, args.config_file, args.selected_config)
    if found.schema not in (NATIVE, schema):
        (wanted, _), (key, command) = _OWNERS[schema], _OWNERS[found.schema]
        step = f"{command} {args.verb} -f {shlex.quote(args.config_file)}"
        raise ConfigError(f"{found.source} has {key}, not {wanted}", next_step=step)
    return msgspec.structs.replace(found, fleet=True)


def desired(args: Args, config: ConfigFile, inventory: Inventory) -> Desired:
    """Resolve the selected config for this node, and print what of it does not concern the node as notes."""
    from aliquot.core.config.select.named_config import select

    found = select(config, args.selected_config, inventory)
    for line in found.notes:
        streams.note(f"note: {line}")
    return found


def execute(execution: apply_plan.PlanExecution, args: Args, hooks: Hooks | None = None) -> Inventory:
    """Apply a plan, and return the inventory after it. Raises the error of a failed action, as NVIDIA's tools do."""
    from aliquot.core.engine.apply import apply
    from aliquot.foundation.signals import stoppable

    def debug(line: str) -> None:
        if args.debug:
            streams.note(line)

    if execution.plan.blocked:
        raise _blocked(execution.plan)
    debug(summary.plan_text(execution.plan))
    with stoppable():
        outcome = apply(execution.plan, execution.connection.execution_context(hooks), debug)
    if outcome.error:
        streams.note(apply_plan.text(outcome, execution))
        raise outcome.error
    return outcome.inventory


def with_refusal(error: DriftError, inventory: Inventory, wanted: Desired) -> DriftError:
    """Return the error of a node that differs from a config. If the planner refuses to apply the config, it has the
    reason in place of that command.
    """
    from aliquot.core.planner.plan import plan

    made = plan(inventory, wanted, Policy())
    if not made.blocked:
        return error
    refusal = _blocked(made)
    details = (*error.details, f"apply is refused: {refusal.brief}", *refusal.details)
    return DriftError(error.brief, details=details, next_step=refusal.next_step)


def _blocked(plan: Plan) -> AliquotError:
    from aliquot.core.planner.blockers import OR_WAIT

    first = plan.blockers[0]
    step = (first.next_step or "").removesuffix(OR_WAIT) or None  # these command lines have no such option
    return BlockedError(first.message, code=first.rule, details=_details(plan), next_step=step)


def _details(plan: Plan) -> tuple[str, ...]:
    held = tuple(f"holder   {holder}" for holder in plan.blockers[0].holders)
    return held + tuple(blocker.message for blocker in plan.blockers[1:])


def drift(inventory: Inventory, wanted: Desired) -> tuple[str, ...]:
    """Return how the node differs from the desired state of these GPUs. Raises BlockedError if it can never be met."""
    from aliquot.core.planner.verify import verify

    desired_args.refuse_errors(wanted)
    return tuple(each.message for each in verify(inventory, wanted))
