"""A configuration file as values: named configs with entries, for every format."""

from __future__ import annotations

import msgspec

from aliquot.core.config.select.selector import Selector
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.config.text.vgpu_request import VgpuRequest

NATIVE = "aliquot/v1"
JSON_MARK = "x-aliquot"
"""A member of JSON files that names the program that wrote them. Readers ignore it."""
MIG_PARTED = "mig-parted/v1"
VGPU_DEVICE_MANAGER = "vgpu-device-manager/v1"

MIG = "mig"
VGPU = "vgpu"
PASSTHROUGH = "passthrough"
SHARES = (MIG, VGPU, PASSTHROUGH)
"""The kinds of share. A GPU has one at a time, so an entry names one."""


class ConfigEntry(msgspec.Struct, frozen=True):
    """The desired state of some GPUs. ``share`` decides which of the other fields count."""

    selector: Selector
    mig: bool
    """MIG: whether MIG mode is requested."""
    instances: tuple[InstanceRequest, ...]
    """MIG: the instances, and no others unless ``at_least``."""
    line: int
    column: int
    share: str = MIG
    types: tuple[VgpuRequest, ...] = ()
    """vGPU: the types; empty means no vGPUs."""
    mixed_size: bool | None = None
    """vGPU: whether mixed-size mode is requested, None for "as it is"."""
    parameters: str | None = None
    """vGPU: the plugin parameters of each, None for "as they are"."""
    scheduler: str | None = None
    """vGPU: the scheduler, None for "as it is"."""
    on: bool = False
    """Passthrough: whether it is requested."""
    at_least: bool = False


class ConfigFile(msgspec.Struct, frozen=True):
    """A configuration file that was read."""

    source: str
    """The file's name in messages."""
    schema: str
    """NATIVE, MIG_PARTED or VGPU_DEVICE_MANAGER."""
    configs: dict[str, tuple[ConfigEntry, ...]]
    compat: bool = False
    """Whether it was read as leniently as the format's own tool reads it. Named GPUs that are absent become notes."""
    fleet: bool = False
    """Whether it is for nodes of several kinds. Named GPUs that are absent from this node become notes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The named configs, in the order of the file."""
        return tuple(self.configs)
