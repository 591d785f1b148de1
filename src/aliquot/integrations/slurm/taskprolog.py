"""Which devices a task has, and what its TaskProlog says: ``export CUDA_VISIBLE_DEVICES=MIG-...``.

Slurm runs TaskProlog as the job's user, in the task's control group, with the task's environment, and takes lines
``export NAME=value`` from it. The device is found by Slurm's ordinals (SLURM_STEP_GPUS, per task where tasks are bound)
and held against what the task can open: with ConstrainDevices a capability of somebody else says EPERM.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping

import msgspec

from aliquot.integrations.slurm.devices import Device
from aliquot.integrations.slurm.numbering import Numbering

STEP_GPUS, JOB_GPUS, CUDA, NVIDIA = (
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
_OURS = ("MIG-", "GPU-")

Opens = Callable[[str], bool]
"""Whether this process may open a device node."""


class Found(msgspec.Struct, frozen=True):
    """A task's devices. ``trouble`` is a sentence where they cannot be told for sure; then there are none."""

    devices: tuple[Device, ...] = ()
    trouble: str = ""


def ordinals(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of the GRES that a task has, or a job on this node (``0,2``, ``0-2``); () where Slurm says none."""
    from aliquot.integrations.slurm.cores import members

    return members(environ.get(STEP_GPUS) or environ.get(JOB_GPUS) or "")


def uuids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The UUIDs that Slurm itself gave, which it does with AutoDetect."""
    words = environ.get(CUDA, "").split(",")
    return tuple(words) if words[0].startswith(_OURS) else ()


def found(environ: Mapping[str, str], numbering: Numbering, opens: Opens) -> Found:
    """A task's devices by its environment and by what it can open."""
    mine = numbering.at(ordinals(environ))
    slices = [d for d in numbering.devices if d.instance is not None]
    open_to_me = [d for d in slices if all(opens(file) for file in d.files[1:])]
    if len(open_to_me) == len(slices):
        return Found(mine)  # no fence, or all of it is ours: the numbers are all there is
    if not mine and not numbering.detected:
        # Slurm 22.05 sets no variable in tasks of --gpus-per-task with a type: what opens is the step's.
        return Found(tuple(open_to_me))
    wanted = [d for d in mine if d.instance is not None]
    if all(d in open_to_me for d in wanted):
        return Found(mine)
    if len(open_to_me) == len(wanted) and len(wanted) == len(mine):
        return Found(tuple(open_to_me))
    return Found(
        trouble=f"gres.conf of {numbering.node} and the numbers that Aliquot keeps differ: "
        f"Slurm gave {', '.join(d.uuid for d in wanted)}, and {len(open_to_me)} others can be opened"
    )


def exports(devices: tuple[Device, ...], numbering: Numbering) -> tuple[str, ...]:
    """The lines for Slurm. None on a node without MIG, where Slurm's numbers are CUDA's; beside MIG devices even a
    whole GPU's number is another to CUDA. Of several MIG devices a process uses the first alone.
    """
    sliced = any(d.instance is not None for d in numbering.devices)
    if not devices or not sliced or not all(d.uuid for d in devices):
        return ()
    value = ",".join(d.uuid for d in devices)
    return f"export {CUDA}={value}", f"export {NVIDIA}={value}"


def may_open(file: str) -> bool:
    """By trying. A capability node does nothing but say who may; the GPU's own node would wake the GPU."""
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        # The fence of control groups says EPERM. ENXIO: allowed, and no driver behind it (a simulated GPU).
        return error.errno != errno.EPERM
    return True
