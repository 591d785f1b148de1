"""The parts that all vGPU frameworks share: the types that a function offers, the vGPUs on it, and the protocol to
manage them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from aliquot.core.model.inventory import FrameworkName

TYPES = "mdev_supported_types"
CURRENT = "nvidia/current_vgpu_type"
PARAMETERS = "nvidia/vgpu_params"


class VgpuTypeOffer(msgspec.Struct, frozen=True):
    """A vGPU type that the driver offers at a function."""

    type_id: int
    available: int
    """The number of vGPUs of this type that can be created there now."""
    name: str = ""
    """Empty if it was not read, like the description."""
    description: str = ""


class KernelVgpu(msgspec.Struct, frozen=True):
    """A vGPU as the kernel shows it."""

    function: str
    type_id: int
    uuid: str
    """Empty in a framework without UUIDs."""
    devices: tuple[str, ...]
    """The files below /dev through which a VM opens it."""
    gpu_instance: int | None = None
    placement: int | None = None
    """The driver's placement, which counts only in mixed-size mode."""
    parameters: str = ""
    """Its plugin parameters, in our order."""


class VgpuFramework(Protocol):
    """A protocol for listing, creating and destroying vGPUs at a function. Every method raises OSError, and
    MalformedError for malformed attributes.
    """

    name: FrameworkName

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[VgpuTypeOffer, ...]:
        """Return the types that a function lists, in ascending order. Names are read only for ``unknown`` types."""
        ...

    def inspect(self, function: str) -> tuple[KernelVgpu, ...]:
        """Return the vGPUs of a function."""
        ...

    def create(self, function: str, type_id: int, uuid: str) -> None: ...

    def destroy(self, kernel_vgpu: KernelVgpu) -> None: ...

    def path(self, function: str, type_id: int) -> str:
        """Return the file that a creation writes, for messages."""
        ...

    def parameters_path(self, function: str, uuid: str) -> str:
        """Return the file of a vGPU's plugin parameters."""
        ...
