"""What Slurm's own scripts call: ``aliquot slurm task-prolog`` and ``aliquot slurm dcgm``."""

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
    """Never fails for what it cannot tell: a task without the variable is better than no task."""
    from aliquot.slurm.jobs import task_prolog as taskprolog

    numbered = _numbering(args)
    if taskprolog.uuids(os.environ) or numbered is None:
        if numbered is None and taskprolog.ordinals(os.environ):
            streams.note(f"aliquot: nothing on {_node(args)} numbers its GPUs: 'aliquot slurm render --number' does")
        lines: tuple[str, ...] = ()
        devices: tuple[GresDevice, ...] = ()
    else:
        lookup = taskprolog.task_devices(os.environ, numbered, taskprolog.may_open)
        if lookup.error:
            streams.note(f"aliquot: {lookup.error}")
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
            f"nothing on this host numbers the GPUs of {_node(args)}", next_step="aliquot slurm render --number"
        )
    devices = tuple(d for d in numbered.devices if d.uuid in given) if given else numbered.devices_at(ordinals)
    if len(devices) != len(given or ordinals):
        raise BlockedError(
            f"job {job} has GPUs that the numbers of {_node(args)} do not know: they are not those of gres.conf",
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
    text = "\n".join(lines) or "no job has a GPU, as far as Prolog= told (deploy/slurm/prolog.sh)"
    output.emit(output.build("GpuJobs", jobs=found), args.output, text)
    return 0


def _emit_changes(changed: tuple[str, ...], args: Args) -> int:
    """Prolog and Epilog are silent: what they print goes to the job, or to slurmd's log."""
    output.emit(output.build("GpuJobs", changed=changed), args.output, "")
    return 0


def _job() -> str:
    found = os.environ.get("SLURM_JOB_ID", "")
    if decimal(found, 10) is None:
        raise UsageError(
            "this is for Slurm's Prolog and Epilog, which have SLURM_JOB_ID", next_step="aliquot slurm dcgm --help"
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
