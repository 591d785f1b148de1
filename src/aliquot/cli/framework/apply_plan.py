"""Carrying out a plan, with progress while it runs and the whole truth after."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import plan as planning
from aliquot.cli.framework import confirmation, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework.parser import Args
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary
from aliquot.errors import AliquotError, HardwareError, StorageError

if TYPE_CHECKING:
    from aliquot.cli.framework.progress import ProgressBar
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.ports import Hooks
    from aliquot.node.connect import Connection

_EXIT = {"nothing": 0, "done": 0, "reboot": 10}


class PlanExecution:
    """A plan, the node it is for, and the inventory that it was made from. ``saved``: the plan comes from a file;
    ``agreed``: a person was shown it as part of another plan, and agreed.
    """

    __slots__ = ("agreed", "connection", "inventory", "plan", "saved")

    def __init__(
        self, connection: Connection, plan: Plan, inventory: Inventory, *, saved: bool = False, agreed: bool = False
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.inventory = inventory
        self.saved = saved
        self.agreed = agreed


def execute(execution: PlanExecution, args: Args) -> int:
    """Applies a plan, once a person agreed if one is there, and prints what came of it. Returns the exit code; raises
    what the engine refuses to start.
    """
    if execution.plan.blocked:
        return planning.show(execution.plan, execution.inventory, args)
    if not (execution.agreed or _confirmed(execution, args)):
        answer = output.build("Outcome", node=execution.plan.node, status="declined", driver_calls=0)
        output.emit(answer, args.output, confirmation.DECLINED)
        return confirmation.DECLINED_EXIT
    from aliquot.core.engine.apply import apply
    from aliquot.foundation.signals import stoppable

    made = hooks(args.hooks, environment(args), debug=bool(os.environ.get("ALIQUOT_DEBUG")))
    context = execution.connection.execution_context(made)
    with stoppable(), _progress_bar(execution) as bar:
        if bar is not None:
            context.on_step = bar.step
        outcome = apply(execution.plan, context, streams.note, saved=execution.saved)
    try:
        report(outcome, execution, args)
    except (StorageError, BrokenPipeError) as error:
        if outcome.error is not None:  # it decides the exit code, also where the terminal or the reader is gone
            streams.redirect_to_devnull()
            streams.note(text(outcome, execution))
            failure.report(outcome.error, args.output, args.typed_node)
        elif isinstance(error, BrokenPipeError) or not outcome.calls:
            raise
        else:  # "Blocked" would say that nothing was changed.
            raise AliquotError(
                f"{error.brief}; it was: {text(outcome, execution)}", next_step="aliquot show"
            ) from error
    if outcome.status == "partial":
        return HardwareError.exit_code
    return outcome.error.exit_code if outcome.error else _EXIT[outcome.status]


def _confirmed(execution: PlanExecution, args: Args) -> bool:
    if not execution.plan.changes:
        return True
    from aliquot.cli.framework.views import plan_view as planview
    from aliquot.core.engine.saved_plan import confirm

    def shown(color: bool) -> str:
        if (
            execution.inventory.fingerprint != execution.plan.fingerprint
        ):  # a saved plan for another state cannot be drawn
            return f"{args.plan}: {summary.applied_text(execution.plan)}"
        if execution.saved:
            confirm(execution.plan, execution.inventory)
        notes = [f"note: {line}" for line in execution.plan.notes]
        return "\n".join([*notes, planview.text(execution.plan, execution.inventory, color)])

    return confirmation.confirmed(args, shown)


def _progress_bar(execution: PlanExecution) -> AbstractContextManager[ProgressBar | None]:
    """A bar below the lines of progress, with the time that this node's own past lets one expect; None where no
    terminal shows it.
    """
    if not streams.watched():
        return nullcontext()
    from aliquot.cli.framework import progress
    from aliquot.core.engine.duration_estimate import expected_seconds, measured_durations
    from aliquot.hardware.state.journal_reader import JOURNAL, read

    if not progress.wanted():
        return nullcontext()
    try:
        past = read(os.path.join(execution.connection.directory, JOURNAL))
    except AliquotError:
        past = []
    return progress.progress_bar(
        progress.initial_state(
            execution.plan, execution.inventory, expected_seconds(execution.plan, measured_durations(past))
        )
    )


def hooks(path: str | None, environment: dict[str, str], *, debug: bool, without: tuple[str, ...] = ()) -> Hooks:
    """The commands of a hooks file, or nothing to run. Those of the hooks ``without`` are left out."""
    from aliquot.node.hooks import CommandHooks, NoHooks

    if not path:
        return NoHooks()
    from aliquot.core.config.formats.hooks import load_hooks

    found = load_hooks(output.read_text(path, "hooks file"), path)
    for line in found.notes:
        streams.note(f"note: {line}")
    fired = {name: commands for name, commands in found.hooks.items() if name not in without}
    return CommandHooks(fired, environment, debug=debug)


def environment(args: Args) -> dict[str, str]:
    """The variables that mig-parted gives to hooks."""
    return {
        "MIG_PARTED_CONFIG_FILE": getattr(args, "file", None) or "",
        "MIG_PARTED_SELECTED_CONFIG": getattr(args, "config", None) or "",
        "MIG_PARTED_HOOKS_FILE": args.hooks or "",
        "MIG_PARTED_SKIP_RESET": "false",
        "MIG_PARTED_MODE_CHANGE_ONLY": "true" if getattr(args, "mode_only", False) else "false",
    }


def report(outcome: ApplyOutcome, execution: PlanExecution, args: Args) -> None:
    """Prints an outcome: the result on stdout, a failure also on stderr."""
    if args.output == "text":
        for line in execution.plan.notes:
            streams.note(f"note: {line}")
    output.emit(document(outcome, execution), args.output, text(outcome, execution))
    if outcome.error:
        failure.report(outcome.error, args.output, args.typed_node)


def document(outcome: ApplyOutcome, execution: PlanExecution) -> dict[str, Any]:
    """An outcome as plain data."""
    plan = execution.plan
    return output.build(
        "Outcome",
        node=plan.node,
        status=outcome.status,
        kept=plan.unchanged,
        destroyed=plan.destroyed if outcome.status in ("done", "reboot") else 0,
        created=plan.created if outcome.status in ("done", "reboot") else 0,
        driver_calls=outcome.calls,
        verified=outcome.error is None and not outcome.drift,
        undone=outcome.sentences,
        drift=outcome.drift,
        reboots=plan.reboots,
        notes=plan.notes,
        fingerprint=outcome.inventory.fingerprint,
        error=outcome.error.document() if outcome.error else None,
    )


def text(outcome: ApplyOutcome, execution: PlanExecution) -> str:
    """An outcome for people."""
    plan = execution.plan
    if outcome.status == "nothing":
        return "nothing to do: this plan is carried out already" if plan.changes else summary.plan_text(plan)
    if outcome.status in ("done", "reboot"):
        done = f"done: {summary.applied_text(plan)}"
        if outcome.status == "reboot":
            return f"{done}; {_reboot(execution)}, then run the same command again"
        return f"{done}; verified by a fresh read"
    head = "not all could be undone" if outcome.status == "partial" else "undone: the former state is back"
    if not outcome.calls:
        head = "nothing was changed"
    lines = [head, *(f"  {line}" for line in outcome.sentences)]
    return "\n".join(lines + [f"  differs from before: {d.message}" for d in outcome.drift])


def _reboot(execution: PlanExecution) -> str:
    """What is to be restarted: a guest that has the GPU whole cannot reset it, and its host need not be restarted."""
    guest = any(g.pci in execution.plan.reboots and not g.resettable for g in execution.inventory.gpus)
    what = "a reboot of this virtual machine" if guest else "a reboot"
    return f"GPU {', '.join(execution.plan.reboots)} needs {what}"
