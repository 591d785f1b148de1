"""``aliquot slurm controller`` and ``aliquot slurm demand``: layouts on demand, and the jobs that need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.slurm.client.port import Slurm
    from aliquot.slurm.controller.models import SlurmDecision, SlurmObservation
    from aliquot.slurm.controller.settings import SlurmControllerSettings


def run(args: Args) -> int:
    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.controller.settings_parser import load

    source = "<stdin>" if args.file == "-" else args.file
    settings = load(output.read_text(args.file, "settings file"), source)
    with open_client() as slurm:
        if args.verb == "demand":
            return _dry_run(args, settings, slurm)
        if args.remove and (args.once or args.dry_run):
            raise UsageError("--remove excludes --once and --dry-run", next_step=f"{args.prog} --help")
        if args.remove:
            return _withdraw(args, slurm)
        if args.dry_run:
            return _dry_run(args, settings, slurm)
        return _run(args, settings, slurm)


def _run(args: Args, settings: SlurmControllerSettings, slurm: Slurm) -> int:
    """Run the controller, and serve its metrics if an address is given."""
    from aliquot.slurm.controller.main import run as run_controller

    if not args.once:
        tune_gc()
    where = args.listen or settings.listen
    if not where or args.once:
        return run_controller(settings, slurm, streams.note, once=args.once)
    from aliquot.cli.commands.metrics import require_library
    from aliquot.metrics.listen_address import LOCAL_STEP, parse_listen_address

    address, port = parse_listen_address(where)
    require_library()
    from aliquot.foundation.http_server import HttpServer
    from aliquot.slurm.controller.metrics import SlurmMetrics

    metrics = SlurmMetrics()
    server = HttpServer(metrics.page.pages(), address, port, LOCAL_STEP)
    server.start()
    streams.note(f"Prometheus metrics on http://{server.display_address}/metrics")
    try:
        return run_controller(settings, slurm, streams.note, metrics=metrics)
    finally:
        server.close()


def _dry_run(args: Args, settings: SlurmControllerSettings, slurm: Slurm) -> int:
    """Observe once and print the decision; changes and stores nothing."""
    from aliquot.slurm.controller.main import controller

    with controller(settings, slurm, streams.note, persist=False) as work:
        observation = work.observe()
        decision = work.decide(observation)
    document = output.build(
        "SlurmDemand",
        jobs=[_job(observation, v.job) | output.document(v) for v in decision.verdicts],
        changes=[output.document(r) for r in decision.repartitions],
        drains=[output.document(d) for d in decision.drains],
        records=[_node_state(r) for r in observation.state.node_states],
    )
    output.emit(document, args.output, _text(observation, decision))
    return 0


def _job(observation: SlurmObservation, job: int) -> dict[str, Any]:
    want = next((w for w in observation.queue.demands if w.job == job), None)
    alone = next((a for a in observation.queue.unserved if a.job == job), None)
    if want is not None:
        return {"user": want.user, "need": want.need, "nodes": want.nodes, "priority": want.priority}
    return {"user": alone.user if alone else "", "need": {}, "nodes": 0, "priority": 0}


def _node_state(state: Any) -> dict[str, Any]:
    return {
        "name": state.name,
        "states": sorted(state.node.states) if state.node else [],
        "jobs": state.jobs,
        "free": dict(sorted(state.free.items())),
        "shut": state.shut,
        "failure": state.failure,
    }


def _text(observation: SlurmObservation, decision: SlurmDecision) -> str:
    from aliquot.slurm.controller.decide import types_text

    wants = {w.job: w for w in observation.queue.demands}
    lines = []
    for verdict in decision.verdicts:
        want = wants.get(verdict.job)
        need = f" {types_text(want.need) or ','.join(want.layouts)}" if want else ""
        on = f" on {want.nodes} nodes" if want and want.nodes > 1 else ""
        lines.append(f"job {verdict.job}{need}{on}: {verdict.state_text}, {verdict.sentence}")
        lines += [f"  {line}" for line in verdict.why]
    for repartition in decision.repartitions:
        plural = "" if repartition.destroyed == 1 else "s"
        change = f"{repartition.destroyed} instance{plural} destroyed, {repartition.created} created"
        lines.append(f"{repartition.node_name} would offer {types_text(repartition.offered) or 'nothing'} ({change})")
    for drain in decision.drains:
        lines.append(f"{drain.node_name} would take no new jobs, for job {drain.job}")
    problems = [f"{r.name}: {r.shut or r.failure}" for r in observation.state.node_states if r.shut or r.failure]
    return "\n".join([*(lines or ["no pending job waits for GPUs"]), *problems])


def _withdraw(args: Args, slurm: Slurm) -> int:
    """Delete the placeholders. Slurm then refuses new jobs for absent layouts; pending ones keep waiting."""
    from aliquot.slurm.controller.log_once import LogOnce
    from aliquot.slurm.controller.placeholder_sync import PlaceholderSync
    from aliquot.slurm.controller.placeholders import is_ours

    names = tuple(n.name for n in slurm.nodes() if is_ours(n.name))
    PlaceholderSync(slurm, LogOnce(streams.note)).withdraw(names)
    left = [n.name for n in slurm.nodes() if is_ours(n.name)]
    text = f"deleted {', '.join(n for n in names if n not in left) or 'nothing'}"
    output.emit(
        output.build("SlurmPlaceholders", deleted=[n for n in names if n not in left], left=left), args.output, text
    )
    return 20 if left else 0
