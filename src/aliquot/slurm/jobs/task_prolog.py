"""Which devices a task has, and what its TaskProlog says: ``export CUDA_VISIBLE_DEVICES=MIG-...``.

Slurm runs TaskProlog as the job's user, in the task's control group, with the task's environment, and takes lines
``export NAME=value`` from it. The device is found by Slurm's ordinals (SLURM_STEP_GPUS, per task where tasks are bound)
and held against what the task can open: with ConstrainDevices a capability of somebody else says EPERM.
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
"""Whether this process may open a device node."""


class TaskDevices(msgspec.Struct, frozen=True):
    """A task's devices. ``error`` is a sentence where they cannot be told for sure; then there are none."""

    devices: tuple[GresDevice, ...] = ()
    error: str = ""


def ordinals(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of the GRES that a task has, or a job on this node (``0,2``, ``0-2``); () where Slurm says none."""
    from aliquot.slurm.gpus.cores import members

    return members(environ.get(STEP_GPUS) or environ.get(JOB_GPUS) or "")


def uuids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The UUIDs that Slurm itself gave, which it does with AutoDetect."""
    words = environ.get(CUDA, "").split(",")
    return tuple(words) if words[0].startswith(_OURS) else ()


def task_devices(environ: Mapping[str, str], numbering: Numbering, opens: Opens) -> TaskDevices:
    """A task's devices by its environment and by what it can open."""
    mine = numbering.devices_at(ordinals(environ))
    openable = tuple(d for d in numbering.devices if all(opens(file) for file in d.files))
    if len(openable) == len(numbering.devices):
        return TaskDevices(mine)  # no fence, or all of it is ours: the numbers are all there is
    if not mine and not numbering.detected:
        # Slurm 22.05 sets no variable in tasks of --gpus-per-task with a type: what opens is the step's.
        return TaskDevices(openable)
    if all(d in openable for d in mine):
        return TaskDevices(mine)
    if len(openable) == len(mine):
        return TaskDevices(openable)
    return TaskDevices(
        error=f"gres.conf of {numbering.node} and the numbers that Aliquot keeps differ: by Slurm's numbers the task "
        f"has {', '.join(d.uuid for d in mine)}, and it can open {', '.join(d.uuid for d in openable) or 'none'}"
    )


def exports(devices: tuple[GresDevice, ...], numbering: Numbering) -> tuple[str, ...]:
    """The lines for Slurm. None on a node without MIG, where Slurm's numbers are CUDA's; beside MIG devices even a
    whole GPU's number is another to CUDA. Of several MIG devices a process uses the first alone.
    """
    sliced = any(d.instance is not None for d in numbering.devices)
    if not devices or not sliced or not all(d.uuid for d in devices):
        return ()
    value = ",".join(d.uuid for d in devices)
    return f"export {CUDA}={value}", f"export {NVIDIA}={value}"


def may_open(file: str) -> bool:
    """By access(2), which asks the control group's fence, too, and opens nothing: opening its node wakes a GPU. What is
    not there says nothing.
    """
    return os.access(file, os.R_OK) or not os.path.exists(file)
