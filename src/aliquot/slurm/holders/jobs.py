"""GPUs of this host that Slurm jobs hold, from /proc. They must not be destroyed even if no process uses them.

A job's processes run below a slurmstepd (``steps``). Their initial environment names their devices: MIG UUIDs that
Slurm or our TaskProlog set, else ordinals of the node's GRES (SLURM_STEP_GPUS, or SLURM_JOB_GPUS in batch scripts). The
numbering on disk maps ordinals to devices. A user can change the environment, and then holds too much or too little,
but only in the name of their own job. An allocation without a process here is not visible: ``aliquot slurm apply``
queries slurmctld.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aliquot.core.model.claims import Claim, Claims
from aliquot.core.model.inventory import Gpu, Holder

if TYPE_CHECKING:  # every plan reads the jobs; if there are none, the rest is not even imported
    from aliquot.slurm.files.gpu_numbering import Numbering
    from aliquot.slurm.files.job_devices import GresDevice
    from aliquot.slurm.holders.steps import JobSteps

JOB: Final = "job"
"""The kind of these holders. Their id is ``slurm:7``, never the bare number, which would stand for a process."""

_NODE, _USER, _NAME = "SLURMD_NODENAME", "SLURM_JOB_USER", "SLURM_JOB_NAME"
_WANTED = (_NODE, _USER, _NAME, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
_USUAL, _LARGEST = 1 << 13, 1 << 20
"""Bytes of an environment. A large buffer is expensive, and every process is read before each destroy."""
_LONGEST = 64
"""Limit of a name in characters, because users choose it and administrators see it."""


def source(simulated: str) -> Claims:
    """Return a ``HolderSource`` for the claims of Slurm's jobs on this host, or on a simulated node."""
    return lambda gpus: claims(gpus, os.environ.get("ALIQUOT_SLURM_RUN", ""), simulated=bool(simulated))


def claims(gpus: Sequence[Gpu], folder: str = "", proc: str = "/proc", *, simulated: bool = False) -> tuple[Claim, ...]:
    """Return a claim for each Slurm job on this host that has any of these GPUs.

    A job whose GRES are unknown, because the numbering is missing, claims all GPUs: a refusal is better than a destroy
    under a job. On a simulated node, whose host may have jobs for other GPUs, only known devices of jobs in this mount
    namespace count. ``folder`` is the directory of the numberings, if not the default.
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
    """Report whether a Slurm job has a process on this host."""
    return next(_environments(proc), None) is not None


def _numbering(node: str, folder: str) -> Numbering | None:
    from aliquot.slurm.files import gpu_numbering as numbering

    return numbering.read(node, folder or numbering.RUN_FOLDER)


def _shown(name: str) -> str:
    """Return a name without control characters."""
    return "".join(c for c in name[:_LONGEST] if c.isprintable())


def devices_by_job(folder: str = "", proc: str = "/proc") -> dict[str, tuple[GresDevice, ...]]:
    """Return the jobs that have a process on this host, with their known devices."""
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
    """Return the UUIDs of these GPUs and instances that a process has, or None if some of its devices are unknown."""
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
    """Yield the job, and the GPU variables of the environment, of every process that belongs to a job.

    Equal pairs are yielded once. ``mount_namespace`` limits this to processes of one mount namespace.
    """
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    steps: JobSteps | None = None
    try:
        pids = [entry for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return
    for pid in pids:
        words = _environment(f"{proc}/{pid}/environ")
        # A shell of salloc has a job too, on any host. Only slurmd's own children know the name of their node.
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
    """Return the relevant variables of a process; {} if it has ended or is not accessible.

    Reads without a file object, because a node has thousands of processes.
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
