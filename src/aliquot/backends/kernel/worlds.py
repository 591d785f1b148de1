"""Which of the three kernel worlds a GPU lives in: found by its files, never by a version. One interface over all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from aliquot.backends.files import Files
from aliquot.backends.kernel.pci import attribute

MDEV = "mdev"
SRIOV_MDEV = "sriov-mdev"
VENDOR_VFIO = "vendor-vfio"
TYPES = "mdev_supported_types"
CURRENT = "nvidia/current_vgpu_type"


class Offer(msgspec.Struct, frozen=True):
    """A vGPU type that the driver knows at a function. ``name`` and ``description`` are empty where they were not
    asked; ``free`` is how many can be made of it there now.
    """

    type_id: int
    free: int
    name: str = ""
    description: str = ""


class Found(msgspec.Struct, frozen=True):
    """A vGPU as the kernel shows it. ``uuid`` is empty where the world has none; ``devices`` are the files below /dev
    by which a virtual machine opens it; ``placement`` what the driver says, which counts in mixed-size mode only.
    """

    function: str
    type_id: int
    uuid: str
    devices: tuple[str, ...]
    gpu_instance: int | None = None
    placement: int | None = None


class World(Protocol):
    """How vGPUs are listed, made and ended at a function. Everything raises OSError, and Malformed for nonsense."""

    name: str

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[Offer, ...]:
        """The types that can be told at a function, ascending. Names of those that are ``unknown`` are asked."""
        ...

    def inspect(self, function: str) -> tuple[Found, ...]:
        """The vGPUs of a function."""
        ...

    def create(self, function: str, type_id: int, uuid: str) -> None: ...

    def destroy(self, found: Found) -> None: ...

    def path(self, function: str, type_id: int) -> str:
        """The file that a creation writes, for messages."""
        ...


def world(files: Files, pci: str, functions: Sequence[str], sriov: bool) -> World | None:
    """The world of a GPU: of its first virtual function that shows one, else of the GPU itself where it has no SR-IOV.
    None where no vGPU driver is at work (or virtual functions are off, so that nothing shows).
    """
    for function in functions:
        if files.exists(attribute(function, CURRENT)):
            from aliquot.backends.kernel.vendor_vfio import VendorVfio

            return VendorVfio(files)
        if files.exists(attribute(function, TYPES)):
            return _mdev(files, SRIOV_MDEV)
    if not sriov and not functions and files.exists(attribute(pci, TYPES)):
        return _mdev(files, MDEV)
    return None


def _mdev(files: Files, name: str) -> World:
    from aliquot.backends.kernel.mdev import Mdev

    return Mdev(files, name)
