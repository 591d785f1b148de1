"""Apply a plan, with progress while it runs and the full result afterwards."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import plan as planning
from aliquot.cli.framework import confirmation, output, streams
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.vm_references import with_vms
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.rendering import plan_summary as summary
from aliquot.errors import AliquotError, HardwareError, StorageError

if TYPE_CHECKING:
    from aliquot.cli.framework.progress import ProgressBar
    from aliquot.core.engine.apply import PlanCheck
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.ports import Hooks
    from aliquot.core.engine.step_timing import StepListener, TimedStep
    from aliquot.node.connect import Connection

_EXIT = {"nothing": 0, "done": 0, "reboot": 10}


class PlanExecution:
    """A plan, its node, and the inventory that it was made from. ``check`` refuses a plan from a file that was edited.
    ``agreed`` is set if the user saw the plan as part of another one and agreed.
    """

    __slots__ = ("agreed", "check", "connection", "inventory", "plan")

    def __init__(
        self,
        connection: Connection,
        plan: Plan,
        inventory: Inventory,
        *,
        check: PlanCheck | None = None,
        agreed: bool = False,
    ) -> None:
        self.connection = connection
        self.plan = plan
        self.inventory = inventory
        self.check = check
        self.agreed = agreed


def execute(execution: PlanExecution, args: Args) -> int:
    """Apply a plan, after the user agreed if stdin is a terminal, and print the result. Return the exit code. Raises
    what the engine refuses to start.
    """
    if execution.plan.blocked:
        return planning.show(execution.plan, execution.inventory, args)
    if execution.check is None:  # a plan from a file stays as it is
        execution.plan = with_vms(execution.plan, args)
    if not (execution.agreed or _confirmed(execution, args)):
        answer = output.build("Outcome", node=execution.plan.node, status="declined", driver_calls=0)
        output.emit(answer, args.output, confirmation.DECLINED)
        return confirmation.DECLINED_EXIT
    from aliquot.core.engine.apply import apply
    from aliquot.foundation.signals import stoppable

    made = hooks(args.hooks, environment(args), debug=bool(os.environ.get("ALIQUOT_DEBUG")))
    with stoppable(), _progress_bar(execution) as bar:
        context = execution.connection.execution_context(made, _step_listener(args, bar))
        outcome = apply(execution.plan, context, streams.note, check=execution.check)
    try:
        report(outcome, execution, args)
    except (StorageError, BrokenPipeError) as error:
        if outcome.error is not None:  # it decides the exit code, also where the terminal or the reader is gone
            streams.redirect_to_devnull()
            streams.error(text(outcome, execution))
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
    from aliquot.cli.framework.views import plan_view as plan_views

    def shown(color: bool) -> str:
        if (
            execution.inventory.fingerprint != execution.plan.fingerprint
        ):  # a saved plan for another state cannot be drawn
            return f"{args.plan}: {summary.applied_text(execution.plan)}"
        if execution.check is not None:
            execution.check(execution.plan, execution.inventory)
        notes = [f"note: {line}" for line in execution.plan.notes]
        return "\n".join(
            [*notes, plan_views.text(execution.plan, execution.inventory, color, each=getattr(args, "each", False))]
        )

    return confirmation.confirmed(args, shown)


def _progress_bar(execution: PlanExecution) -> AbstractContextManager[ProgressBar | None]:
    """Return a progress bar with the time that this node's earlier changes suggest; None if no terminal shows it."""
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


def _step_listener(args: Args, bar: ProgressBar | None) -> StepListener:
    """Return what each step of the change is reported to: the progress bar, the log of ``-v``, both or neither."""
    listeners = [bar.step] if bar is not None else []
    if getattr(args, "verbose", False):
        from aliquot.cli.framework.verbosity import log_step

        listeners.append(log_step)

    def report_step(step: TimedStep) -> None:
        for listener in listeners:
            listener(step)

    return report_step


def hooks(path: str | None, environment: dict[str, str], *, debug: bool, without: tuple[str, ...] = ()) -> Hooks:
    """Return the commands of a hooks file, or no hooks. Those of the hooks ``without`` are left out."""
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
    """Return the variables that mig-parted gives to hooks."""
    return {
        "MIG_PARTED_CONFIG_FILE": getattr(args, "file", None) or "",
        "MIG_PARTED_SELECTED_CONFIG": getattr(args, "config", None) or "",
        "MIG_PARTED_HOOKS_FILE": args.hooks or "",
        "MIG_PARTED_SKIP_RESET": "false",
        "MIG_PARTED_MODE_CHANGE_ONLY": "true" if getattr(args, "mode_only", False) else "false",
    }


def report(outcome: ApplyOutcome, execution: PlanExecution, args: Args) -> None:
    """Print an outcome: the result to stdout, a failure also to stderr."""
    if args.output == "text":
        for line in execution.plan.notes:
            streams.note(f"note: {line}")
    output.emit(document(outcome, execution), args.output, text(outcome, execution))
    if outcome.error:
        failure.report(outcome.error, args.output, args.typed_node)


def document(outcome: ApplyOutcome, execution: PlanExecution) -> dict[str, Any]:
    """Return an outcome as plain data."""
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
    """Return an outcome as text."""
    plan = execution.plan
    if outcome.status == "nothing":
        return "nothing to do: this plan was applied already" if plan.changes else summary.plan_text(plan)
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
    """Return what to restart: a guest cannot reset a GPU that is passed through to it, and its host need not reboot."""
    guest = any(g.pci in execution.plan.reboots and not g.resettable for g in execution.inventory.gpus)
    what = "a reboot of this virtual machine" if guest else "a reboot"
    return f"GPU {', '.join(execution.plan.reboots)} needs {what}"
