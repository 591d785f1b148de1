"""``aliquot slurm report``: what jobs requested and used by GPU type, from Slurm's accounting and DCGM."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.cli.slurm import report_view
from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aliquot.slurm.client.models import SlurmNode
    from aliquot.slurm.gpus.type_facts import TypeFacts
    from aliquot.slurm.report.accounting import AccountingJob, JobFilter
    from aliquot.slurm.report.measured import LabelMatch, Peaks
    from aliquot.slurm.report.prometheus import Prometheus
    from aliquot.slurm.report.window import Window


class _Cluster(msgspec.Struct, frozen=True):
    """The state of the cluster that a report needs."""

    settings: dict[str, str]
    nodes: tuple[SlurmNode, ...]
    running: frozenset[int] | None
    """None if Slurm may hide jobs of other users."""


class _Measured(msgspec.Struct, frozen=True):
    """The peaks of jobs, and who measured them."""

    peaks: Peaks = {}
    by: str = ""
    """``dcgm``, ``slurm`` or ""."""
    reason: str = ""
    """The reason why DCGM measured nothing."""


def run(args: Args) -> int:
    from aliquot.slurm.report.accounting import JobFilter, counts_memory, read_jobs, read_memory
    from aliquot.slurm.report.job_report import build_report
    from aliquot.slurm.report.measured import LabelMatch
    from aliquot.slurm.report.prometheus import Prometheus, read_token
    from aliquot.slurm.report.step_memory import peaks_of_steps
    from aliquot.slurm.report.window import parse_since

    window = parse_since(args.since, int(time.time()))
    chosen = JobFilter(args.user or "", args.partition or "", args.account or "")
    token = read_token(args.prometheus_token_file) if args.prometheus_token_file else ""
    prometheus = Prometheus(args.prometheus, token=token) if args.prometheus else None
    labels = tuple(map(LabelMatch.parse, args.prometheus_label or ()))
    cluster = _cluster(chosen)
    jobs = read_jobs(chosen, window)
    facts = _facts(cluster.nodes, jobs)
    measured = _dcgm(prometheus, window, labels)
    if measured.reason and counts_memory(cluster.settings):
        peaks = peaks_of_steps(jobs, read_memory(chosen, window), facts)
        measured = _Measured(peaks, "slurm" if peaks else "", measured.reason)
    found = build_report(jobs, window, facts, measured.peaks, cluster.running)
    document = output.build(
        "SlurmReport",
        since=window.since,
        until=window.until,
        **msgspec.to_builtins(chosen),
        prometheus=args.prometheus or "",
        measured_by=measured.by,
        no_dcgm=measured.reason,
        **output.document(found),
    )
    output.emit(document, args.output, report_view.text(found, window))
    for note in (*report_view.notes(found), *report_view.source(measured.by, measured.reason)):
        streams.note(f"note     {note}")
    return 0


def _cluster(chosen: JobFilter) -> _Cluster:
    """Read the cluster. Raises SlurmError, or BlockedError for a partition that does not exist."""
    from aliquot.slurm.client.connect import open_client
    from aliquot.slurm.report.accounting import check_settings

    chosen.words()
    with open_client() as slurm:
        settings = slurm.settings()
        check_settings(settings)
        known = {each.name for each in slurm.partitions()} if chosen.partition else set()
        for name in filter(None, chosen.partition.split(",")):
            if name not in known:
                raise BlockedError(
                    f"Slurm has no partition {name}", code="NO_PARTITION", next_step="scontrol show partitions"
                )
        hidden = "jobs" in settings.get("PrivateData", "").split(",")
        running = None if hidden else frozenset(job.id for job in slurm.jobs(holding=True))
        return _Cluster(settings, slurm.nodes(), running)


def _dcgm(prometheus: Prometheus | None, window: Window, labels: tuple[LabelMatch, ...]) -> _Measured:
    from aliquot.slurm.report.measured import MEMORY, read_peaks
    from aliquot.slurm.report.prometheus import NoMeasurementsError

    if prometheus is None:
        return _Measured(reason="name the Prometheus that scrapes dcgm-exporter with --prometheus URL")
    try:
        found = read_peaks(window, prometheus.ask, labels)
    except NoMeasurementsError as error:
        return _Measured(reason=f"{prometheus.url}: {error}")
    if not found:
        return _Measured(reason=f"{prometheus.url} has no {MEMORY} with the label hpc_job: aliquot slurm dcgm --help")
    return _Measured(found, "dcgm")


def _facts(nodes: Iterable[SlurmNode], jobs: Iterable[AccountingJob]) -> dict[str, TypeFacts]:
    """Return the facts of the types of nodes, and of types that only past jobs had."""
    from aliquot.slurm.gpus.type_facts import facts_of_types

    present = [{each.type for each in node.gres if each.name == "gpu"} for node in nodes]
    past = {kind for job in jobs for kind, _ in job.devices}.difference(*present)
    return facts_of_types([*present, *({kind} for kind in past)])
