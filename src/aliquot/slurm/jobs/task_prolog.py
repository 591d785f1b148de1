"""The devices of a task, and the output of its TaskProlog: ``export CUDA_VISIBLE_DEVICES=MIG-...``.

Slurm runs TaskProlog as the job's user, in the task's control group, with the task's environment, and reads lines
``export NAME=value`` from it. Slurm's ordinals (SLURM_STEP_GPUS, per task if tasks are bound) identify the devices. The
devices are compared with what the task can open: with ConstrainDevices, another job's capability fails with EPERM.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from aliquot.slurm.files.gpu_numbering import Numbering
from aliquot.slurm.files.job_devices import GresDevice

STEP_GPUS, JOB_GPUS, CUDA, NVIDIA = (
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
_OURS = ("MIG-", "GPU-")

Opens = Callable[[str], bool]
"""Reports whether this process may open a device node."""


class TaskDevices(msgspec.Struct, frozen=True):
    """The devices of a task."""

    devices: tuple[GresDevice, ...] = ()
    error: str = ""
    """Why the devices are uncertain; then ``devices`` is empty."""


def ordinals(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ordinals of the GRES of a task, or of a job on this node (``0,2``, ``0-2``); () if Slurm sets none."""
    from aliquot.slurm.gpus.cores import members

    return members(environ.get(STEP_GPUS) or environ.get(JOB_GPUS) or "")


def uuids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs that Slurm itself set, as it does with AutoDetect."""
    words = environ.get(CUDA, "").split(",")
    return tuple(words) if words[0].startswith(_OURS) else ()


def task_devices(environ: Mapping[str, str], numbering: Numbering, opens: Opens) -> TaskDevices:
    """Return a task's devices from its environment and from what it can open."""
    mine = numbering.devices_at(ordinals(environ))
    openable = tuple(d for d in numbering.devices if all(opens(file) for file in d.files))
    if len(openable) == len(numbering.devices):
        return TaskDevices(mine)  # not constrained, or all devices are ours: only the ordinals tell
    if not mine and not numbering.detected:
        # Slurm 22.05 sets no variable in tasks of --gpus-per-task with a type: the step has what it can open.
        return TaskDevices(openable)
    if all(d in openable for d in mine):
        return TaskDevices(mine)
    if len(openable) == len(mine):
        return TaskDevices(openable)
    return TaskDevices(
        error=f"gres.conf of {numbering.node} and Aliquot's numbering differ: by Slurm's numbers the task "
        f"has {', '.join(d.uuid for d in mine)}, but it can open {', '.join(d.uuid for d in openable) or 'none'}"
    )


def exports(devices: tuple[GresDevice, ...], numbering: Numbering) -> tuple[str, ...]:
    """Return the lines for Slurm; none on a node without MIG, where Slurm's numbers are those of CUDA.

    If a node has MIG devices, CUDA numbers even whole GPUs differently. A process uses only the first of several MIG
    devices.
    """
    sliced = any(d.instance is not None for d in numbering.devices)
    if not devices or not sliced or not all(d.uuid for d in devices):
        return ()
    value = ",".join(d.uuid for d in devices)
    return f"export {CUDA}={value}", f"export {NVIDIA}={value}"


def may_open(file: str) -> bool:
    """Report whether this process may open a device node.

    access(2) also checks the control group, and does not open the node, which would wake the GPU. A missing file counts
    as openable.
    """
    return os.access(file, os.R_OK) or not os.path.exists(file)
