"""``aliquot slurm controller`` and ``aliquot slurm demand``: layouts on demand, and the jobs that need them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError

if TYPE_CHECKING:
    from aliquot.slurm.client.port import Slurm
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
    from aliquot.cli.slurm import demand_view
    from aliquot.foundation.lock import holder
    from aliquot.slurm.controller.main import controller

    with controller(settings, slurm, streams.note, persist=False) as work:
        observation = work.observe()
        decision = work.decide(observation)
    runs = holder(f"{settings.history}.lock")
    document = output.build("SlurmDemand", **demand_view.fields(observation, decision), controller=runs)
    output.emit(document, args.output, demand_view.text(observation, decision))
    if args.output == "text" and args.verb == "demand":
        step = "" if args.file == "-" else f": {shlex.join(['aliquot', 'slurm', 'controller', '-f', args.file])}"
        streams.note(
            f"note     {runs} is the controller" if runs else f"note     no controller runs on this host{step}"
        )
    return 0


def _withdraw(args: Args, slurm: Slurm) -> int:
    """Delete the placeholders, and the record of the controller's claim.

    Slurm then refuses new jobs for absent layouts; pending ones keep waiting.
    """
    from aliquot.slurm.client.cluster_claim import RECORD
    from aliquot.slurm.controller.log_once import LogOnce
    from aliquot.slurm.controller.placeholder_sync import PlaceholderSync
    from aliquot.slurm.controller.placeholders import is_ours

    nodes = slurm.nodes()
    names = (*(n.name for n in nodes if is_ours(n.name)), *(n.name for n in nodes if n.name == RECORD))
    PlaceholderSync(slurm, LogOnce(streams.note)).withdraw(names)
    left = [n.name for n in slurm.nodes() if n.name in names]
    text = f"deleted {', '.join(n for n in names if n not in left) or 'nothing'}"
    output.emit(
        output.build("SlurmPlaceholders", deleted=[n for n in names if n not in left], left=left), args.output, text
    )
    return 20 if left else 0
