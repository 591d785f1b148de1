"""``aliquot slurm controller`` and ``aliquot slurm demand``: layouts on demand, and what they are demanded for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.long_running import lasts
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.slurm.client.port import Slurm
    from aliquot.slurm.controller.loop import Look
    from aliquot.slurm.controller.models import Decision
    from aliquot.slurm.controller.settings import Settings


def run(args: Args) -> int:
    from aliquot.slurm.client.connect import opened
    from aliquot.slurm.controller.settings_parser import load

    source = "<stdin>" if args.file == "-" else args.file
    settings = load(output.read_text(args.file, "settings file"), source)
    with opened() as slurm:
        if args.verb == "demand":
            return _looked(args, settings, slurm)
        if args.withdraw and (args.once or args.dry_run):
            raise UsageError("--withdraw stands alone", next_step=f"{args.prog} --help")
        if args.withdraw:
            return _withdraw(args, slurm)
        if args.dry_run:
            return _looked(args, settings, slurm)
        return _run(args, settings, slurm)


def _run(args: Args, settings: Settings, slurm: Slurm) -> int:
    """The controller itself, with its figures served where that is asked."""
    from aliquot.slurm.controller.main import run as run_controller

    if not args.once:
        lasts()
    where = args.listen or settings.listen
    if not where or args.once:
        return run_controller(settings, slurm, streams.note, once=args.once)
    from aliquot.cli.commands.metrics import library
    from aliquot.metrics.listen import place

    address, port = place(where)
    library()
    from aliquot.metrics.http_server import Server
    from aliquot.slurm.controller.metrics import Tally

    tally = Tally()
    server = Server(tally.page, address, port)
    server.start()
    streams.note(f"figures for Prometheus on http://{server.shown}/metrics")
    try:
        return run_controller(settings, slurm, streams.note, tally=tally)
    finally:
        server.close()


def _looked(args: Args, settings: Settings, slurm: Slurm) -> int:
    """One look, and what would be decided; nothing is touched or kept."""
    from aliquot.slurm.controller.main import controller

    with controller(settings, slurm, streams.note, keeps=False) as work:
        look = work.look()
        decision = work.decide(look)
    document = output.made(
        "SlurmDemand",
        jobs=[_job(look, v.job) | output.document(v) for v in decision.verdicts],
        changes=[output.document(r) for r in decision.recuts],
        drains=[output.document(d) for d in decision.drains],
        records=[_record(r) for r in look.world.records],
    )
    output.emit(document, args.output, _text(look, decision))
    return 0


def _job(look: Look, job: int) -> dict[str, Any]:
    want = next((w for w in look.queue.wants if w.job == job), None)
    alone = next((a for a in look.queue.alone if a.job == job), None)
    if want is not None:
        return {"user": want.user, "need": want.need, "nodes": want.nodes, "priority": want.priority}
    return {"user": alone.user if alone else "", "need": {}, "nodes": 0, "priority": 0}


def _record(record: Any) -> dict[str, Any]:
    return {
        "name": record.name,
        "states": sorted(record.node.states) if record.node else [],
        "jobs": record.jobs,
        "free": dict(sorted(record.free.items())),
        "shut": record.shut,
        "failure": record.failure,
    }


def _text(look: Look, decision: Decision) -> str:
    from aliquot.slurm.controller.decide import types_text

    wants = {w.job: w for w in look.queue.wants}
    lines = []
    for verdict in decision.verdicts:
        want = wants.get(verdict.job)
        asked = f" {types_text(want.need) or ','.join(want.layouts)}" if want else ""
        on = f" on {want.nodes} nodes" if want and want.nodes > 1 else ""
        lines.append(f"job {verdict.job}{asked}{on}: {verdict.state}, {verdict.sentence}")
        lines += [f"  {line}" for line in verdict.why]
    for recut in decision.recuts:
        change = f"{recut.destroyed} instance{'' if recut.destroyed == 1 else 's'} destroyed, {recut.created} made"
        lines.append(f"{recut.record} would offer {types_text(recut.offered) or 'nothing'} ({change})")
    for drain in decision.drains:
        lines.append(f"{drain.record} would take no new jobs, for job {drain.job}")
    troubles = [f"{r.name}: {r.shut or r.failure}" for r in look.world.records if r.shut or r.failure]
    return "\n".join([*(lines or ["no pending job waits for GPUs"]), *troubles])


def _withdraw(args: Args, slurm: Slurm) -> int:
    """Jobs for absent layouts are refused by Slurm again; those that wait go on waiting."""
    from aliquot.slurm.controller.log_once import Telling
    from aliquot.slurm.controller.placeholder_sync import Placing
    from aliquot.slurm.controller.placeholders import is_ours

    names = tuple(n.name for n in slurm.nodes() if is_ours(n.name))
    Placing(slurm, Telling(streams.note)).withdraw(names)
    left = [n.name for n in slurm.nodes() if is_ours(n.name)]
    text = f"deleted {', '.join(n for n in names if n not in left) or 'nothing'}"
    output.emit(
        output.made("SlurmPlaceholders", deleted=[n for n in names if n not in left], left=left), args.output, text
    )
    return 20 if left else 0
