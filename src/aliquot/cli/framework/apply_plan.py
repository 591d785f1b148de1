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
    from aliquot.cli.framework.progress import Bar
    from aliquot.core.engine.context import Outcome
    from aliquot.core.engine.ports import Hooks
    from aliquot.node.connect import Connection

_EXIT = {"nothing": 0, "done": 0, "reboot": 10}


class Job:
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


def carry_out(job: Job, args: Args) -> int:
    """Applies a plan, once a person agreed if one is there, and prints what came of it. Returns the exit code; raises
    what the engine refuses to start.
    """
    if job.plan.blocked:
        return planning.show(job.plan, job.inventory, args)
    if not (job.agreed or _agreed(job, args)):
        answer = output.made("Outcome", node=job.plan.node, status="declined", driver_calls=0)
        output.emit(answer, args.output, confirmation.DECLINED)
        return confirmation.DECLINED_EXIT
    from aliquot.core.engine.apply import apply
    from aliquot.foundation.signals import stoppable

    made = hooks(args.hooks, environment(args), debug=bool(os.environ.get("ALIQUOT_DEBUG")))
    everything = job.connection.world(made)
    with stoppable(), _shown(job) as bar:
        if bar is not None:
            everything.watch = bar.step
        outcome = apply(job.plan, everything, streams.note, saved=job.saved)
    try:
        report(outcome, job, args)
    except (StorageError, BrokenPipeError) as error:
        if outcome.error is not None:  # it decides the exit code, also where the terminal or the reader is gone
            streams.point_away()
            streams.note(text(outcome, job))
            failure.report(outcome.error, args.output, args.typed_node)
        elif isinstance(error, BrokenPipeError) or not outcome.calls:
            raise
        else:  # "Blocked" would say that nothing was changed.
            raise AliquotError(f"{error.brief}; it was: {text(outcome, job)}", next_step="aliquot show") from error
    if outcome.status == "partial":
        return HardwareError.exit_code
    return outcome.error.exit_code if outcome.error else _EXIT[outcome.status]


def _agreed(job: Job, args: Args) -> bool:
    if not job.plan.changes:
        return True
    from aliquot.cli.framework.views import plan_view as planview
    from aliquot.core.engine.saved_plan import confirm

    def shown(color: bool) -> str:
        if job.inventory.fingerprint != job.plan.fingerprint:  # a saved plan for another state cannot be drawn
            return f"{args.plan}: {summary.deeds(job.plan)}"
        if job.saved:
            confirm(job.plan, job.inventory)
        notes = [f"note: {line}" for line in job.plan.notes]
        return "\n".join([*notes, planview.text(job.plan, job.inventory, color)])

    return confirmation.confirmed(args, shown)


def _shown(job: Job) -> AbstractContextManager[Bar | None]:
    """A bar below the lines of progress, with the time that this node's own past lets one expect; None where no
    terminal shows it.
    """
    if not streams.watched():
        return nullcontext()
    from aliquot.cli.framework import progress
    from aliquot.core.engine.duration_estimate import expected, pace
    from aliquot.hardware.state.journal_reader import JOURNAL, read

    if not progress.wanted():
        return nullcontext()
    try:
        past = read(os.path.join(job.connection.directory, JOURNAL))
    except AliquotError:
        past = []
    return progress.showing(progress.begun(job.plan, job.inventory, expected(job.plan, pace(past))))


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


def report(outcome: Outcome, job: Job, args: Args) -> None:
    """Prints an outcome: the result on stdout, a failure also on stderr."""
    if args.output == "text":
        for line in job.plan.notes:
            streams.note(f"note: {line}")
    output.emit(document(outcome, job), args.output, text(outcome, job))
    if outcome.error:
        failure.report(outcome.error, args.output, args.typed_node)


def document(outcome: Outcome, job: Job) -> dict[str, Any]:
    """An outcome as plain data."""
    plan = job.plan
    return output.made(
        "Outcome",
        node=plan.node,
        status=outcome.status,
        kept=plan.kept,
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


def text(outcome: Outcome, job: Job) -> str:
    """An outcome for people."""
    plan = job.plan
    if outcome.status == "nothing":
        return "nothing to do: this plan is carried out already" if plan.changes else summary.figures(plan)
    if outcome.status in ("done", "reboot"):
        done = f"done: {summary.deeds(plan)}"
        if outcome.status == "reboot":
            return f"{done}; {_reboot(job)}, then run the same command again"
        return f"{done}; verified by a fresh read"
    head = "not all could be undone" if outcome.status == "partial" else "undone: the former state is back"
    if not outcome.calls:
        head = "nothing was changed"
    lines = [head, *(f"  {line}" for line in outcome.sentences)]
    return "\n".join(lines + [f"  differs from before: {d.message}" for d in outcome.drift])


def _reboot(job: Job) -> str:
    """What is to be restarted: a guest that has the GPU whole cannot reset it, and its host need not be restarted."""
    guest = any(g.pci in job.plan.reboots and not g.reset for g in job.inventory.gpus)
    what = "a reboot of this virtual machine" if guest else "a reboot"
    return f"GPU {', '.join(job.plan.reboots)} needs {what}"
