"""Device files of GPUs, and the instance that the minor of a capability stands for.

The minor of a GPU instance is 3 + 135 * gpu + 9 * gi, and that of a compute instance is 1 + ci more. There are 32 GPUs
of 15 GPU instances of 8 compute instances. ``gpu`` is the N of ``/dev/nvidiaN``, not nvidia-smi's index. Source:
nv-caps.c of NVIDIA's open kernel modules.
"""

from __future__ import annotations

import re

import msgspec

_GPU = re.compile(r".*/nvidia(\d{1,9})", re.ASCII)
_CAPABILITY = re.compile(r".*/nvidia-cap(\d{1,9})", re.ASCII)
_FIRST, _GPU_STEP, _INSTANCE_STEP, _LAST = 3, 135, 9, 4322


class AdminCapability(msgspec.Struct, frozen=True):
    """A capability that is not for jobs."""

    name: str
    effect: str
    """What it lets a job do."""

    def __str__(self) -> str:
        return f"{self.name}, which lets a job {self.effect}"


ADMIN = {
    1: AdminCapability("mig/config", "repartition the GPU"),
    2: AdminCapability("mig/monitor", "monitor every instance"),
}


class MigCapability(msgspec.Struct, frozen=True):
    """The instance that a capability node gives access to."""

    gpu: int
    gi: int
    ci: int | None = None
    """The compute instance; None for a GPU instance."""

    @property
    def minor(self) -> int:
        return _FIRST + _GPU_STEP * self.gpu + _INSTANCE_STEP * self.gi + (0 if self.ci is None else 1 + self.ci)

    @property
    def parent(self) -> MigCapability:
        """The GPU instance that contains a compute instance."""
        return MigCapability(self.gpu, self.gi)

    def __str__(self) -> str:
        inner = "" if self.ci is None else f"compute instance {self.ci} of "
        return f"{inner}GPU instance {self.gi} on /dev/nvidia{self.gpu}"


def gpu_minor(file: str) -> int | None:
    """Return the N of ``/dev/nvidiaN``, or None for another file."""
    match = _GPU.fullmatch(file)
    return int(match[1]) if match else None


def capability_minor(file: str) -> int | None:
    """Return the N of ``/dev/nvidia-caps/nvidia-capN``, or None for another file."""
    match = _CAPABILITY.fullmatch(file)
    return int(match[1]) if match else None


def capability(minor: int) -> MigCapability | None:
    """Return the instance of a minor by the formula.

    Returns None for capabilities of the whole driver, and beyond the last instance.
    """
    if not _FIRST <= minor <= _LAST:
        return None
    gpu, rest = divmod(minor - _FIRST, _GPU_STEP)
    gi, inner = divmod(rest, _INSTANCE_STEP)
    return MigCapability(gpu, gi, inner - 1 if inner else None)
