"""What every kernel world has in common: what can be made at a function, what was found there, and how it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aliquot.core.model.inventory import FrameworkName

TYPES = "mdev_supported_types"
CURRENT = "nvidia/current_vgpu_type"


class VgpuTypeOffer(msgspec.Struct, frozen=True):
    """A vGPU type that the driver knows at a function. ``name`` and ``description`` are empty where they were not
    asked; ``available`` is how many can be made of it there now.
    """

    type_id: int
    available: int
    name: str = ""
    description: str = ""


class KernelVgpu(msgspec.Struct, frozen=True):
    """A vGPU as the kernel shows it. ``uuid`` is empty where the world has none; ``devices`` are the files below /dev
    by which a virtual machine opens it; ``placement`` what the driver says, which counts in mixed-size mode only.
    """

    function: str
    type_id: int
    uuid: str
    devices: tuple[str, ...]
    gpu_instance: int | None = None
    placement: int | None = None


class VgpuFramework(Protocol):
    """How vGPUs are listed, made and ended at a function. Everything raises OSError, MalformedError for nonsense."""

    name: FrameworkName

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[VgpuTypeOffer, ...]:
        """The types that can be told at a function, ascending. Names of those that are ``unknown`` are asked."""
        ...

    def inspect(self, function: str) -> tuple[KernelVgpu, ...]:
        """The vGPUs of a function."""
        ...

    def create(self, function: str, type_id: int, uuid: str) -> None: ...

    def destroy(self, kernel_vgpu: KernelVgpu) -> None: ...

    def path(self, function: str, type_id: int) -> str:
        """The file that a creation writes, for messages."""
        ...
