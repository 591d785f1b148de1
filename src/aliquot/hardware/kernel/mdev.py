"""vGPUs as mediated devices: of the GPU itself (before Ampere), or one on each virtual function.

A type is a directory ``mdev_supported_types/nvidia-746``. The number identifies it, not the prefix: one host with
driver 550.163 showed ``vfio-pci-575`` on some functions. Writing a UUID to its ``create`` file creates a vGPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from aliquot.core.model.inventory import FrameworkName
from aliquot.core.model.plugin_parameters import normal_text
from aliquot.hardware.kernel.framework import PARAMETERS, TYPES, KernelVgpu, VgpuTypeOffer
from aliquot.hardware.kernel.pci import DEVICES, attribute
from aliquot.hardware.kernel.sysfs import MalformedError, link_target, list_names, read_number, read_optional
from aliquot.hardware.kernel_files import KernelFiles

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_TYPE = re.compile(r"[A-Za-z][\w-]*-(\d+)")
_NONE = 0xFFFF
"""GPU instance ids and placements from this value on mean none: nvml.h has 0xFFFF as the invalid placement, others are
all ones.
"""


class MdevFramework:
    """Mediated devices. ``name`` tells whether they are on the GPU itself or on its virtual functions."""

    def __init__(self, files: KernelFiles, name: FrameworkName) -> None:
        self.name: FrameworkName = name
        self._files = files

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[VgpuTypeOffer, ...]:
        """Return all types of the function, including those of which none can be created now: their
        directories stay.
        """
        offers = []
        for type_id, folder in sorted(self._folders(function).items()):
            available = read_number(self._files, f"{folder}/available_instances") or 0
            read_names = unknown(type_id)
            name = read_optional(self._files, f"{folder}/name") or "" if read_names else ""
            description = read_optional(self._files, f"{folder}/description") or "" if read_names else ""
            offers.append(VgpuTypeOffer(type_id, available, name, description))
        return tuple(offers)

    def inspect(self, function: str) -> tuple[KernelVgpu, ...]:
        uuids = sorted(
            name.lower() for name in list_names(self._files, f"{DEVICES}/{function}") if _UUID.fullmatch(name)
        )
        return tuple(found for uuid in uuids if (found := self._read_vgpu(function, uuid)) is not None)

    def _read_vgpu(self, function: str, uuid: str) -> KernelVgpu | None:
        """Return one mediated device, or None if it disappeared during the read."""
        folder = attribute(function, uuid)
        type_name = link_target(self._files, f"{folder}/mdev_type")
        match = _TYPE.fullmatch(type_name)
        if match is None and type_name:
            raise MalformedError(f"{folder}/mdev_type is {type_name[:40]!r}, which contains no type number")
        if match is None:
            return None
        group = link_target(self._files, f"{folder}/iommu_group")
        devices = (f"/dev/vfio/{group}",) if group else ()
        cdevs = list_names(self._files, f"{folder}/vfio-dev")
        return KernelVgpu(
            function,
            int(match[1]),
            uuid,
            (*devices, *(f"/dev/vfio/devices/{c}" for c in sorted(cdevs))),
            valid_id(read_number(self._files, f"{folder}/nvidia/gpu_instance_id")),
            valid_id(read_number(self._files, f"{folder}/nvidia/placement_id")),
            normal_text(read_optional(self._files, self.parameters_path(function, uuid)) or ""),
        )

    def create(self, function: str, type_id: int, uuid: str) -> None:
        self._files.write(self.path(function, type_id), uuid)

    def destroy(self, kernel_vgpu: KernelVgpu) -> None:
        self._files.write(attribute(kernel_vgpu.function, f"{kernel_vgpu.uuid}/remove"), "1")

    def path(self, function: str, type_id: int) -> str:
        folder = self._folders(function).get(type_id) or attribute(function, f"{TYPES}/nvidia-{type_id}")
        return f"{folder}/create"

    def parameters_path(self, function: str, uuid: str) -> str:
        return attribute(function, f"{uuid}/{PARAMETERS}")

    def _folders(self, function: str) -> dict[int, str]:
        root = attribute(function, TYPES)
        found = ((name, _TYPE.fullmatch(name)) for name in list_names(self._files, root))
        return {int(match[1]): f"{root}/{name}" for name, match in found if match is not None}


def valid_id(value: int | None) -> int | None:
    """Return a GPU instance id or placement from the driver, or None for the values that mean none."""
    return value if value is not None and 0 <= value < _NONE else None
