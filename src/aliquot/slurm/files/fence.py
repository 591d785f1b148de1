"""What jobs of a Slurm node must not open although no line of the node hands it out: the administrators' capabilities,
and GPUs of the same host that another node of Slurm has, or nobody. Pure.

``ConstrainDevices`` fences the files of a slurmd's own lines in gres.conf, and no others. ``nvidia-cap2`` (mig/monitor)
is open to all users by the driver's mode, ``nvidia-cap1`` (mig/config) to root's jobs; and where each GPU has a slurmd
of its own, a job of one could open the GPUs of all. So these files stand there, too, as one GRES of another name:

    slurm.conf   GresTypes=gpu,nic
                 NodeName=n1-gpu0 Gres=gpu:a100_3g.20gb:2,nic:no_consume:1
    gres.conf    NodeName=n1-gpu0 Name=nic MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap1,...

``nic`` is the one name that every release has a plugin for and that says nothing to a job (before 24.11 a GRES without
one has no files); a site that has NICs by that name in Slurm cannot have this fence. slurmd drops the line unless it is
counted in ``Gres=``, where slurmd reads that.

No job may be given it: its batch script would have all of its files. So slurmctld is told to forget it once slurmd has
registered (``scontrol update nodename=n1-gpu0 gres=...`` without it): whoever asks for it is refused, nobody sees it,
and slurmd fences all the same. It has no type: 24.11 sets a node INVALID that reports a type unknown to slurmctld.

For a dynamic node that holds through restarts of either daemon: one slurmd per GPU should be a dynamic node. For a node
in slurm.conf it holds until slurmctld reads that again. From then on, until the same command or the next change, most
jobs are kept out as before, but not the batch script of one with ``--exclusive`` or ``--gres=nic:1``; ``no_consume``
lets only the first of them in. ``aliquot slurm apply`` without a wish behind every start of slurmctld ends that, or two
lines in job_submit.lua.

Tried on 22.05 and 24.11: tests/system/slurm/test_fence.py.

The list is read when slurmd starts. The GPUs' own nodes never change, and nothing of a GPU works without: a neighbour
may be cut anew meanwhile. Nodes of capabilities that are left over, or newer than the list, open nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from aliquot.core.model.inventory import Gpu
from aliquot.slurm.client.models import Gres

NAME = "nic"
VALUE = f"{NAME}:no_consume:1"
"""What a fenced node has in ``Gres=`` beside its GPUs."""

ADMIN = (1, 2)
"""Capabilities by which one cuts a GPU (mig/config) and watches all of its instances (mig/monitor)."""


def files(gpus: Iterable[Gpu], taken: Collection[str], dev: str = "/dev") -> tuple[str, ...]:
    """Return the device nodes of a host that no job of a Slurm node may open, for its fence: the GPUs that are not
    ``taken`` by devices of that node, with their instances, and the administrators' capabilities where a GPU of the
    host is cut. A GPU that a virtual machine has has no node.
    """
    every = list(gpus)
    whole = [file for gpu in every for file in _own(gpu, dev) if file not in taken]
    admin = [_capability(minor, dev) for minor in ADMIN] if has_instances(every) else []
    inner = [file for gpu in every for file in _inner(gpu, dev) if whole and file not in taken]
    return tuple(dict.fromkeys([*whole, *admin, *inner]))


def has_instances(gpus: Iterable[Gpu]) -> bool:
    """Return whether a GPU of the host is cut, so that there is something to change and to watch by ``ADMIN``."""
    return any(gpu.instances for gpu in gpus)


def line(node: str, fenced: Sequence[str]) -> str:
    """The line of gres.conf: one GRES, however many files it has."""
    key = "MultipleFiles" if len(fenced) > 1 else "File"
    return f"NodeName={node} Name={NAME} {key}={','.join(fenced)}"


def is_fence(entry: str) -> bool:
    """Whether an entry of ``Gres=`` is a fence: ``nic:no_consume:1``, or ``nic:1``, which jobs could be given."""
    name, *rest = entry.partition("(")[0].split(":")
    return name == NAME and all(word == "no_consume" or word.isdigit() for word in rest)


def gres_entry(gres: Gres) -> str:
    """An entry of ``Gres=`` from what Slurm says of a node: releases before 24.11 leave ``no_consume`` out."""
    return VALUE if (gres.name, gres.type) == (NAME, "") else str(gres)


def without_fence(text: str) -> str:
    """A value of ``Gres=`` for slurmctld, which is to know of no fence."""
    return ",".join(part for part in text.split(",") if not is_fence(part))


def with_fence(text: str, lines: Iterable[str]) -> str:
    """What slurmctld has forgotten, for slurmd again: a value of ``Gres=`` with the fence that these lines have."""
    return ",".join(filter(None, (without_fence(text), VALUE))) if has_fence(lines) else text


def has_fence(lines: Iterable[str]) -> bool:
    """Whether a node's lines in gres.conf have a fence."""
    return any(f" Name={NAME} " in line for line in lines)


def _own(gpu: Gpu, dev: str) -> Iterator[str]:
    if gpu.minor >= 0 and not gpu.passthrough:
        yield f"{dev}/nvidia{gpu.minor}"


def _inner(gpu: Gpu, dev: str) -> Iterator[str]:
    for instance in gpu.instances if gpu.minor >= 0 and not gpu.passthrough else ():
        for minor in (instance.capability_minor, *(c.capability_minor for c in instance.compute_instances)):
            if minor > max(ADMIN):
                yield _capability(minor, dev)


def _capability(minor: int, dev: str) -> str:
    return f"{dev}/nvidia-caps/nvidia-cap{minor}"
