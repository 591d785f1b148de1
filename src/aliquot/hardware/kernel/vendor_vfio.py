"""vGPUs as a type written to a virtual function (NVIDIA's vendor-specific VFIO: kernel 6.8 and later, without mdev).

``nvidia/current_vgpu_type`` holds the type's id, 0 for none. ``nvidia/creatable_vgpu_types`` lists what can be written:
a header, then lines like ``1145 : NVIDIA L40S-1B``. A function that has a type, and every function of a full GPU, lists
only the header, so names must have been learned before.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.inventory import FrameworkName
from aliquot.core.model.plugin_parameters import normal_text
from aliquot.hardware.kernel.framework import CURRENT, PARAMETERS, KernelVgpu, VgpuTypeOffer
from aliquot.hardware.kernel.mdev import valid_id
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel.sysfs import (
    MalformedError,
    link_target,
    list_names,
    read_count,
    read_number,
    read_optional,
)
from aliquot.hardware.kernel_files import KernelFiles

CREATABLE = "nvidia/creatable_vgpu_types"


class VendorVfio:
    """Vendor-specific VFIO: at most one vGPU on each virtual function, which stays bound to ``nvidia``."""

    name: FrameworkName = "vendor-vfio"

    def __init__(self, files: KernelFiles) -> None:
        self._files = files

    def list_types(self, function: str, unknown: Callable[[int], bool]) -> tuple[VgpuTypeOffer, ...]:
        return parse_creatable_types(
            read_optional(self._files, attribute(function, CREATABLE)) or "", attribute(function, CREATABLE)
        )

    def inspect(self, function: str) -> tuple[KernelVgpu, ...]:
        type_id = read_count(self._files, attribute(function, CURRENT))
        if not type_id:
            return ()
        return (
            KernelVgpu(
                function,
                type_id,
                "",
                vfio_devices(self._files, function),
                valid_id(read_number(self._files, attribute(function, "nvidia/gpu_instance_id"))),
                valid_id(read_number(self._files, attribute(function, "nvidia/placement_id"))),
                normal_text(read_optional(self._files, self.parameters_path(function, "")) or ""),
            ),
        )

    def create(self, function: str, type_id: int, uuid: str) -> None:
        self._files.write(self.path(function, type_id), str(type_id))

    def destroy(self, kernel_vgpu: KernelVgpu) -> None:
        self._files.write(attribute(kernel_vgpu.function, CURRENT), "0")

    def path(self, function: str, type_id: int) -> str:
        return attribute(function, CURRENT)

    def parameters_path(self, function: str, uuid: str) -> str:
        return attribute(function, PARAMETERS)


def parse_creatable_types(text: str, path: str) -> tuple[VgpuTypeOffer, ...]:
    """Return the types of a list of creatable types, by ascending id. Raises MalformedError for any line but a header
    and ``id : name``.
    """
    offers = []
    for line in filter(str.strip, text.splitlines()):
        word, colon, name = (part.strip() for part in line.partition(":"))
        if word.isdigit() and name:
            offers.append(VgpuTypeOffer(int(word), 1, name))
        elif word.upper() != "ID" or not colon:
            raise MalformedError(f"{path} has a line that is not a type: {line.strip()[:60]!r}")
    return tuple(sorted(offers, key=lambda offer: offer.type_id))


def vfio_devices(files: KernelFiles, function: str) -> tuple[str, ...]:
    """Return the files through which a VM opens a function: of its IOMMU group, and of the device itself (iommufd)."""
    group = link_target(files, attribute(function, "iommu_group"))
    own = tuple(f"/dev/vfio/devices/{name}" for name in sorted(list_names(files, attribute(function, "vfio-dev"))))
    return ((f"/dev/vfio/{group}",) if group else ()) + own
