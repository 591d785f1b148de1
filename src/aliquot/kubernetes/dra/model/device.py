"""The devices of a node as the driver offers them: whole GPUs, placements of MIG profiles, and vGPUs for VMs."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.placement import Placement
from aliquot.kubernetes.dra.model.naming import OWN_DOMAIN
from aliquot.kubernetes.dra.model.objects import DeviceAttribute, DeviceTaint

PLACEMENT_START, PLACEMENT_SIZE = f"{OWN_DOMAIN}/placementStart", f"{OWN_DOMAIN}/placementSize"
WARM = f"{OWN_DOMAIN}/warm"
VGPU_TYPE = f"{OWN_DOMAIN}/vgpuType"
"""The short name of a vGPU type, as vgpu-device-manager spells it."""
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"

ModeChanges = Literal["never", "without-reset", "any"]
"""Which changes of MIG mode a claim may cause. Ampere needs a reset for it, Hopper and later do not."""

Place = tuple[str, int, int]
"""A placement of a node: PCI address of the GPU, profile id, first memory slice."""


class DraDevice(msgspec.Struct, frozen=True):
    """A device that a claim may get. Whether its instance exists does not matter, except for its ``warm`` attribute."""

    name: str
    gpu_uuid: str
    pci: str
    profile: str | None = None
    """Name of the MIG profile. None for the whole GPU and for a time-sliced vGPU."""
    profile_id: int = -1
    start: int = 0
    """First memory slice."""
    size: int = 0
    """Memory slices. 0 for the whole GPU and a time-sliced vGPU."""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, int] = {}
    """Numbers, and bytes for ``memory``."""
    counter_set: str = ""
    """Empty for a GPU without MIG."""
    uses: dict[str, int] = {}
    """What the device takes from its counter set."""
    taints: tuple[DeviceTaint, ...] = ()
    vgpu: str = ""
    """The short name of the vGPU type. Empty for what is not a vGPU."""

    @property
    def place(self) -> Place:
        return self.pci, self.profile_id, self.start

    @property
    def whole(self) -> bool:
        return self.profile is None and not self.vgpu

    @property
    def warm(self) -> bool:
        """True if its instance exists and waits for a claim."""
        return self.attributes.get(WARM, DeviceAttribute()).bool_value is True

    @property
    def mask(self) -> int:
        """The memory slices as bits. 0 for the whole GPU."""
        return Placement(self.start, self.size).mask


class CounterSet(msgspec.Struct, frozen=True):
    """The shared counters of one GPU."""

    name: str
    pci: str
    counters: dict[str, int]
