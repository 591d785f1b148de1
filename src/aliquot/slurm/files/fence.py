"""The fence: device files that jobs of a Slurm node must not open although none of its lines offers them. Pure.

These are the administrators' capabilities, and GPUs of the same host that belong to another Slurm node or to none.

``ConstrainDevices`` only constrains files of a slurmd's own lines in gres.conf. The driver's mode opens ``nvidia-cap2``
(mig/monitor) to all users and ``nvidia-cap1`` (mig/config) to root's jobs. If each GPU has its own slurmd, a job of one
could open the GPUs of all. So these files are listed too, as one GRES with another name:

    slurm.conf   GresTypes=gpu,nic
                 NodeName=n1-gpu0 Gres=gpu:a100_3g.20gb:2,nic:no_consume:1
    gres.conf    NodeName=n1-gpu0 Name=nic MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap1,...

``nic`` is the only name for which every release has a plugin and which sets no variables in jobs (before 24.11 a GRES
without a plugin has no files). A site that has NICs with that name in Slurm cannot use this fence. slurmd drops the
line unless ``Gres=`` counts it.

No job may get this GRES, because its batch script could open all of its files. So after slurmd has registered,
slurmctld's record is updated without it (``scontrol update nodename=n1-gpu0 gres=...``). Slurm then refuses requests
for it and does not show it, but slurmd keeps the fence. It has no type, because 24.11 sets a node INVALID if it reports
a type unknown to slurmctld.

For a dynamic node, this survives restarts of both daemons, so a slurmd per GPU should be a dynamic node. For a node in
slurm.conf, it holds until slurmctld reads the file again. From then until the next change, the batch script of a job
with ``--exclusive`` or ``--gres=nic:1`` can open the files, and ``no_consume`` prevents that only for ``--gres=nic:1``.
Running ``aliquot slurm apply`` without a request after every start of slurmctld closes this gap; so do two lines in
job_submit.lua.

A slot board needs none of this, because its last pad has these files. Other nodes keep the fence. A record of ``gpu``
with these files would be a GPU to Slurm, which a job without a type or of the whole node could get.

Tested on 22.05 and 24.11 in tests/system/slurm/test_fence.py.

slurmd reads the list when it starts. The device nodes of GPUs never change, and nothing on a GPU works without them, so
another node's GPU may be repartitioned in the meantime. Capability nodes that are outdated, or newer than the list,
give no access on their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from aliquot.core.model.inventory import Gpu
from aliquot.slurm.client.models import Gres, Version

ANY_DEVICES = Version(23, 2, 4)
"""The first release that denies jobs any number of device files with control groups of version 2.

Earlier ones have the kernel log their device program into 8 KiB, and the kernel refuses a program whose log is longer.
Source: SchedMD/slurm eafacf30 (src/plugins/cgroup/v2/ebpf.c).
"""
FEW_DEVICES = 22
"""The device files that the log has room for. Measured on Linux 6.18; the log differs between kernels."""
NAME = "nic"
VALUE = f"{NAME}:no_consume:1"
"""The entry of a fenced node in ``Gres=``, in addition to its GPUs."""

ADMIN = (1, 2)
"""Minors of the capabilities to partition a GPU (mig/config) and to monitor all of its instances (mig/monitor)."""


def files(gpus: Iterable[Gpu], taken: Collection[str], dev: str = "/dev") -> tuple[str, ...]:
    """Return the device nodes of a host that no job of a Slurm node may open.

    These are the GPUs that are not ``taken`` by devices of that node, with their instances, and the administrators'
    capabilities if a GPU of the host has instances. A GPU that is passed through to a VM has no device node.
    """
    every = list(gpus)
    whole = [file for gpu in every for file in _own(gpu, dev) if file not in taken]
    admin = [_capability(minor, dev) for minor in ADMIN] if has_instances(every) else []
    inner = [file for gpu in every for file in _inner(gpu, dev) if whole and file not in taken]
    return tuple(dict.fromkeys([*whole, *admin, *inner]))


def has_instances(gpus: Iterable[Gpu]) -> bool:
    """Report whether a GPU of the host has instances, so that the ``ADMIN`` capabilities give access to something."""
    return any(gpu.instances for gpu in gpus)


def line(node: str, fenced: Sequence[str]) -> str:
    """Return the fence line of gres.conf: one GRES with all files."""
    key = "MultipleFiles" if len(fenced) > 1 else "File"
    return f"NodeName={node} Name={NAME} {key}={','.join(fenced)}"


def is_fence(entry: str) -> bool:
    """Report whether an entry of ``Gres=`` is a fence: ``nic:no_consume:1``, or ``nic:1``, which jobs could get."""
    name, *rest = entry.partition("(")[0].split(":")
    return name == NAME and all(word == "no_consume" or word.isdigit() for word in rest)


def gres_entry(gres: Gres) -> str:
    """Return an entry of ``Gres=`` for a GRES that Slurm reports: releases before 24.11 omit ``no_consume``."""
    return VALUE if (gres.name, gres.type) == (NAME, "") else str(gres)


def without_fence(text: str) -> str:
    """Return a value of ``Gres=`` for slurmctld, without the fence."""
    return ",".join(part for part in text.split(",") if not is_fence(part))


def with_fence(text: str, lines: Iterable[str]) -> str:
    """Return slurmctld's value of ``Gres=`` for slurmd, with the fence if these lines have one."""
    return ",".join(filter(None, (without_fence(text), VALUE))) if has_fence(lines) else text


def has_fence(lines: Iterable[str]) -> bool:
    """Report whether a node's lines in gres.conf have a fence."""
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
