"""vGPUs as mediated devices: of the GPU itself (before Ampere), or one of each virtual function.

A type is a directory ``mdev_supported_types/nvidia-746`` (one host with driver 550.163 showed ``vfio-pci-575`` on some
functions: the number decides, not the word). A vGPU is made by writing a UUID to its ``create``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from aliquot.hardware.kernel.framework import TYPES, Found, Offer
from aliquot.hardware.kernel.pci import DEVICES, attribute
from aliquot.hardware.kernel.sysfs import Malformed, names, number, optional, target
from aliquot.hardware.kernel_files import Files

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_TYPE = re.compile(r"[A-Za-z][\w-]*-(\d+)")
_NONE = 0xFFFF
"""From here on a GPU instance or place stands for none: nvml.h has 0xFFFF as the invalid place, others are all ones."""


class Mdev:
    """Mediated devices. ``name`` is the world's: of the GPU itself, or of its virtual functions."""

    def __init__(self, files: Files, name: str) -> None:
        self.name = name
        self._files = files

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[Offer, ...]:
        """Every type of the function, also those of which none can be made now: their directories stay."""
        offers = []
        for type_id, folder in sorted(self._folders(function).items()):
            free = number(self._files, f"{folder}/available_instances") or 0
            told = unknown(type_id)
            name = optional(self._files, f"{folder}/name") or "" if told else ""
            description = optional(self._files, f"{folder}/description") or "" if told else ""
            offers.append(Offer(type_id, free, name, description))
        return tuple(offers)

    def inspect(self, function: str) -> tuple[Found, ...]:
        inside = sorted(name.lower() for name in names(self._files, f"{DEVICES}/{function}") if _UUID.fullmatch(name))
        return tuple(found for uuid in inside if (found := self._found(function, uuid)) is not None)

    def _found(self, function: str, uuid: str) -> Found | None:
        """One mediated device; None if it went while it was looked at."""
        folder = attribute(function, uuid)
        word = target(self._files, f"{folder}/mdev_type")
        kind = _TYPE.fullmatch(word)
        if kind is None and word:
            raise Malformed(f"{folder}/mdev_type is {word[:40]!r}, which has no type's number")
        if kind is None:
            return None
        group = target(self._files, f"{folder}/iommu_group")
        devices = (f"/dev/vfio/{group}",) if group else ()
        cdevs = names(self._files, f"{folder}/vfio-dev")
        return Found(
            function,
            int(kind[1]),
            uuid,
            (*devices, *(f"/dev/vfio/devices/{c}" for c in sorted(cdevs))),
            valid(number(self._files, f"{folder}/nvidia/gpu_instance_id")),
            valid(number(self._files, f"{folder}/nvidia/placement_id")),
        )

    def create(self, function: str, type_id: int, uuid: str) -> None:
        self._files.write(self.path(function, type_id), uuid)

    def destroy(self, found: Found) -> None:
        self._files.write(attribute(found.function, f"{found.uuid}/remove"), "1")

    def path(self, function: str, type_id: int) -> str:
        folder = self._folders(function).get(type_id) or attribute(function, f"{TYPES}/nvidia-{type_id}")
        return f"{folder}/create"

    def _folders(self, function: str) -> dict[int, str]:
        root = attribute(function, TYPES)
        found = ((name, _TYPE.fullmatch(name)) for name in names(self._files, root))
        return {int(kind[1]): f"{root}/{name}" for name, kind in found if kind is not None}


def valid(told: int | None) -> int | None:
    """A GPU instance or place as the driver tells it, None for the numbers that stand for none."""
    return told if told is not None and 0 <= told < _NONE else None
