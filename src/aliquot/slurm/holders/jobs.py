"""Who of Slurm has which GPU of this host, found in /proc: what must not be destroyed although no process is on it.

A job's processes are those below a slurmstepd (``stepds``), and in the environment that Slurm started them with stands
what they have: MIG UUIDs where Slurm or our TaskProlog gave them, else ordinals of the node's GRES (SLURM_STEP_GPUS, or
SLURM_JOB_GPUS in batch scripts), which the numbering on disk makes devices. A user may write something else there: that
holds too much in the name of a job of hers, or too little of her own. An allocation without any process here is not
seen: ``aliquot slurm apply`` asks slurmctld.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from aliquot.core.model.claims import Claim, Claims
from aliquot.core.model.inventory import Gpu, Holder

if TYPE_CHECKING:  # every plan asks for jobs; where there are none, the rest is not even imported
    from aliquot.slurm.files.gpu_numbering import Numbering
    from aliquot.slurm.files.job_devices import GresDevice
    from aliquot.slurm.holders.steps import JobSteps

JOB = "job"
"""The kind of the holders made here; their id is ``slurm:7``, never the bare number: whoever ends a holder takes that
for a process.
"""

_NODE, _USER, _NAME = "SLURMD_NODENAME", "SLURM_JOB_USER", "SLURM_JOB_NAME"
_WANTED = (_NODE, _USER, _NAME, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
_USUAL, _LARGEST = 1 << 13, 1 << 20
"""Bytes of an environment. Room for the largest is dear to make, and every process is looked at before each destroy."""
_LONGEST = 64
"""Of a name: it is shown to administrators, and a user has chosen it."""


def source(simulated: str) -> Claims:
    """Return what asks for the claims of Slurm's jobs on this machine, or on a simulated node: a ``HolderSource``."""
    return lambda gpus: claims(gpus, os.environ.get("ALIQUOT_SLURM_RUN", ""), simulated=bool(simulated))


def claims(gpus: Sequence[Gpu], folder: str = "", proc: str = "/proc", *, simulated: bool = False) -> tuple[Claim, ...]:
    """A claim for each Slurm job here that has any of these GPUs. One that has GRES which nobody can tell any more (the
    numbering is gone) claims them all: better refused than destroyed under a job. Not so on a simulated node, whose
    machine may have other ones: there only jobs of this mount namespace count, by what is known. ``folder`` is where
    numberings lie, if not where a machine's do.
    """
    known: dict[str, Numbering | None] = {}
    devices: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for job, environ in _environments(proc, os.readlink("/proc/self/ns/mnt") if simulated else ""):
        node = environ[_NODE]
        if node not in known:
            known[node] = _numbering(node, folder)
        found = _devices(environ, known[node], gpus)
        if found is None:
            found = set() if simulated else {gpu.uuid for gpu in gpus}
        devices.setdefault(job, set()).update(found)
        names[job] = names.get(job) or _shown(environ.get(_USER) or environ.get(_NAME, ""))
    return tuple(
        Claim(Holder(JOB, f"slurm:{job}", names[job]), tuple(sorted(found)))
        for job, found in sorted(devices.items(), key=lambda item: int(item[0]))
        if found
    )


def any_job(proc: str = "/proc") -> bool:
    """Whether any job of Slurm's has a process here."""
    return next(_environments(proc), None) is not None


def _numbering(node: str, folder: str) -> Numbering | None:
    from aliquot.slurm.files import gpu_numbering as numbering

    return numbering.read(node, folder or numbering.RUN_FOLDER)


def _shown(name: str) -> str:
    """A name without what a terminal would take for orders."""
    return "".join(c for c in name[:_LONGEST] if c.isprintable())


def devices_by_job(folder: str = "", proc: str = "/proc") -> dict[str, tuple[GresDevice, ...]]:
    """The jobs that have a process on this host, and those of their devices that are known."""
    from aliquot.slurm.files import gpu_numbering as numbering
    from aliquot.slurm.jobs import task_prolog as taskprolog

    numbered = {each.node: each for each in numbering.read_all(folder or numbering.RUN_FOLDER)}
    by_uuid = {d.uuid: d for each in numbered.values() for d in each.devices}
    found: dict[str, dict[GresDevice, None]] = {}
    for job, environ in _environments(proc):
        mine = found.setdefault(job, {})
        given = taskprolog.uuids(environ)
        known = numbered.get(environ[_NODE])
        ordinals = taskprolog.ordinals(environ)
        devices = [by_uuid[u] for u in given if u in by_uuid] if given else known.devices_at(ordinals) if known else ()
        mine.update(dict.fromkeys(devices))
    return {job: tuple(mine) for job, mine in found.items()}


def _devices(environ: Mapping[str, str], numbered: Numbering | None, gpus: Sequence[Gpu]) -> set[str] | None:
    """The UUIDs among these GPUs' that a process has; None where it has some that nobody can tell."""
    from aliquot.slurm.jobs import task_prolog as taskprolog

    ours = {gpu.uuid for gpu in gpus} | {c.uuid for gpu in gpus for i in gpu.instances for c in i.compute_instances}
    given = taskprolog.uuids(environ)
    if given:
        return ours.intersection(given)
    ordinals = taskprolog.ordinals(environ)
    if not ordinals:
        return set()
    found = numbered.devices_at(ordinals) if numbered else ()
    return ours.intersection(d.uuid for d in found) if len(found) == len(ordinals) else None


def _environments(proc: str, mount_namespace: str = "") -> Iterator[tuple[str, Mapping[str, str]]]:
    """Of every process that belongs to a job, the job, and what stands in its environment about GPUs. Equal ones once.
    ``mount_namespace`` is a mount namespace to which they must belong.
    """
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    steps: JobSteps | None = None
    try:
        pids = [entry for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return
    for pid in pids:
        words = _environment(f"{proc}/{pid}/environ")
        # A shell of salloc has a job, too, on whatever host: slurmd's own children alone know the name of their node.
        if not words.get(_NODE):
            continue
        if steps is None:
            from aliquot.slurm.holders.steps import JobSteps

            steps = JobSteps(proc)
        job = steps.job_of(int(pid))
        if job is None:
            continue
        key = (job, tuple(sorted(words.items())))
        if key not in seen and (not mount_namespace or _namespace(f"{proc}/{pid}") == mount_namespace):
            seen.add(key)
            yield job, words


def _namespace(process: str) -> str:
    try:
        return os.readlink(os.path.join(process, "ns/mnt"))
    except OSError:
        return ""


def _environment(path: str) -> dict[str, str]:
    """Only the variables that matter; {} for a process that is gone, or not ours to look at. Without a file object: a
    node has thousands of processes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        data = os.read(fd, _USUAL)
        if len(data) == _USUAL:
            data += os.read(fd, _LARGEST)
    except OSError:
        return {}
    finally:
        os.close(fd)
    if b"SLURM_JOB_ID=" not in data:
        return {}
    pairs = (word.partition("=") for word in data.decode(errors="replace").split("\0"))
    return {key: value for key, _, value in pairs if key in _WANTED}
