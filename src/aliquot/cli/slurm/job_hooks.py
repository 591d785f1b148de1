"""Commands for Slurm's own scripts: ``aliquot slurm task-prolog`` and ``aliquot slurm dcgm``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError, UsageError
from aliquot.foundation.decimals import decimal

if TYPE_CHECKING:
    from aliquot.slurm.files.gpu_numbering import Numbering
    from aliquot.slurm.files.job_devices import GresDevice


def run(args: Args) -> int:
    return {"task-prolog": _task_prolog, "begin": _begin, "end": _end, "refresh": _refresh, "list": _list}[args.verb](
        args
    )


def _task_prolog(args: Args) -> int:
    """Print the exports for a task, or nothing if they are unknown: a task without the variable is better than none."""
    from aliquot.slurm.jobs import task_prolog as taskprolog

    numbered = _numbering(args)
    if taskprolog.uuids(os.environ) or numbered is None:
        if numbered is None and taskprolog.ordinals(os.environ):
            streams.error(f"aliquot: {_node(args)} has no numbering of GPUs: run 'aliquot slurm render --number'")
        lines: tuple[str, ...] = ()
        devices: tuple[GresDevice, ...] = ()
    else:
        lookup = taskprolog.task_devices(os.environ, numbered, taskprolog.may_open)
        if lookup.error:
            streams.error(f"aliquot: {lookup.error}")
        devices = lookup.devices
        lines = taskprolog.exports(devices, numbered)
    document = output.build("SlurmTask", uuids=[d.uuid for d in devices], lines=lines)
    output.emit(document, args.output, "\n".join(lines))
    return 0


def _begin(args: Args) -> int:
    from aliquot.slurm.jobs import dcgm_mapping as dcgm
    from aliquot.slurm.jobs import task_prolog as taskprolog

    job = _job()
    numbered = _numbering(args)
    given = taskprolog.uuids(os.environ)
    ordinals = taskprolog.ordinals(os.environ)
    if not given and not ordinals:
        return _emit_changes((), args)  # a job without GPUs
    if numbered is None:
        raise BlockedError(
            f"this host has no numbering of the GPUs of {_node(args)}",
            code="NO_NUMBERING",
            next_step="aliquot slurm render --number",
        )
    devices = tuple(d for d in numbered.devices if d.uuid in given) if given else numbered.devices_at(ordinals)
    if len(devices) != len(given or ordinals):
        raise BlockedError(
            f"job {job} has GPUs that the numbering of {_node(args)} lacks: it does not match gres.conf",
            code="NO_NUMBERING",
            next_step="aliquot slurm render --number",
        )
    return _emit_changes(dcgm.begin(job, devices, _folder(args)), args)


def _end(args: Args) -> int:
    from aliquot.slurm.jobs import dcgm_mapping as dcgm

    return _emit_changes(dcgm.end(_job(), _folder(args)), args)


def _refresh(args: Args) -> int:
    from aliquot.slurm.files import gpu_numbering as numbering
    from aliquot.slurm.holders import jobs as jobs_here
    from aliquot.slurm.jobs import dcgm_mapping as dcgm

    present = jobs_here.devices_by_job(numbering.run_folder(os.environ))
    return _emit_changes(dcgm.refresh(present, _folder(args)), args)


def _list(args: Args) -> int:
    from aliquot.slurm.jobs import dcgm_mapping as dcgm

    found = dcgm.jobs(_folder(args))
    lines = [f"{name}  {' '.join(jobs)}" for name, jobs in found.items()]
    text = "\n".join(lines) or "no recorded job has a GPU; Prolog= records them (deploy/slurm/prolog.sh)"
    output.emit(output.build("GpuJobs", jobs=found), args.output, text)
    return 0


def _emit_changes(changed: tuple[str, ...], args: Args) -> int:
    """Emit the changes without text, because the output of Prolog and Epilog goes to the job or to slurmd's log."""
    output.emit(output.build("GpuJobs", changed=changed), args.output, "")
    return 0


def _job() -> str:
    found = os.environ.get("SLURM_JOB_ID", "")
    if decimal(found, 10) is None:
        raise UsageError(
            "SLURM_JOB_ID is not set: run this from Slurm's Prolog or Epilog", next_step="aliquot slurm dcgm --help"
        )
    return found


def _node(args: Args) -> str:
    from aliquot.cli.slurm.render_sources import node_name

    return node_name(args)


def _numbering(args: Args) -> Numbering | None:
    from aliquot.slurm.files import gpu_numbering as numbering

    return numbering.read(_node(args), numbering.run_folder(os.environ))


def _folder(args: Args) -> str:
    from aliquot.slurm.jobs import dcgm_mapping as dcgm

    return str(args.dir or dcgm.JOBS_FOLDER)
