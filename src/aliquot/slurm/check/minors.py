"""Device files of GPUs, and from a capability's minor back to what it opens.

GPU instance: 3 + 135 gpu + 9 gi; compute instance: that + 1 + ci; 32 GPUs of 15 GPU instances of 8 compute instances.
``gpu`` is the N of ``/dev/nvidiaN``, not nvidia-smi's index. Source: nv-caps.c of NVIDIA's open kernel modules.
"""

from __future__ import annotations

import re

import msgspec

_GPU = re.compile(r".*/nvidia(\d{1,9})", re.ASCII)
_CAPABILITY = re.compile(r".*/nvidia-cap(\d{1,9})", re.ASCII)
_FIRST, _GPU_STEP, _INSTANCE_STEP, _LAST = 3, 135, 9, 4322
ADMIN = {1: "mig/config, which lets a job cut the GPU anew", 2: "mig/monitor, which lets a job watch every instance"}


class MigCapability(msgspec.Struct, frozen=True):
    """What a capability node opens; ``ci`` is None for a GPU instance."""

    gpu: int
    gi: int
    ci: int | None = None

    @property
    def minor(self) -> int:
        return _FIRST + _GPU_STEP * self.gpu + _INSTANCE_STEP * self.gi + (0 if self.ci is None else 1 + self.ci)

    @property
    def parent(self) -> MigCapability:
        """The GPU instance that a compute instance lies in."""
        return MigCapability(self.gpu, self.gi)

    def __str__(self) -> str:
        inner = "" if self.ci is None else f"compute instance {self.ci} of "
        return f"{inner}GPU instance {self.gi} on /dev/nvidia{self.gpu}"


def gpu_minor(file: str) -> int | None:
    """N of ``/dev/nvidiaN``; None for another file."""
    match = _GPU.fullmatch(file)
    return int(match[1]) if match else None


def capability_minor(file: str) -> int | None:
    """N of ``/dev/nvidia-caps/nvidia-capN``; None for another file."""
    match = _CAPABILITY.fullmatch(file)
    return int(match[1]) if match else None


def capability(minor: int) -> MigCapability | None:
    """What the formula says that a minor opens; None for those of the whole driver and beyond the last instance."""
    if not _FIRST <= minor <= _LAST:
        return None
    gpu, rest = divmod(minor - _FIRST, _GPU_STEP)
    gi, inner = divmod(rest, _INSTANCE_STEP)
    return MigCapability(gpu, gi, inner - 1 if inner else None)
