"""A configuration file as values: named configs of entries, whichever format they were written in."""

from __future__ import annotations

import msgspec

from aliquot.core.config.select.selector import Selector
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.config.text.vgpu_request import VgpuRequest

NATIVE = "aliquot/v1"
JSON_MARK = "x-aliquot"
"""A member of JSON files that says who wrote them: readers pass over it."""
MIG_PARTED = "mig-parted/v1"
VGPU_DEVICE_MANAGER = "vgpu-device-manager/v1"

MIG = "mig"
VGPU = "vgpu"
PASSTHROUGH = "passthrough"
SHARES = (MIG, VGPU, PASSTHROUGH)
"""The kinds of share. A GPU is one of them at a time, so an entry names one."""


class ConfigEntry(msgspec.Struct, frozen=True):
    """What some GPUs should become. ``share`` says which of the other fields count.

    MIG: ``mig`` whether MIG mode is wanted, ``instances`` what is to be there then. vGPU: ``types``, of which none
    means no vGPUs, and ``mixed_size``, whether mixed-size mode is wanted, None for "as it is". Passthrough: ``on``.
    """

    selector: Selector
    mig: bool
    instances: tuple[InstanceRequest, ...]
    line: int
    column: int
    share: str = MIG
    types: tuple[VgpuRequest, ...] = ()
    mixed_size: bool | None = None
    on: bool = False


class ConfigFile(msgspec.Struct, frozen=True):
    """``source`` is the file's name for messages, ``schema`` one of NATIVE, MIG_PARTED and VGPU_DEVICE_MANAGER. A
    ``fleet`` file is for nodes of several kinds: GPUs that it names and that are not on this node are notes. So they
    are in one that is read with ``compat``, which takes in silence what the format's own tool takes.
    """

    source: str
    schema: str
    configs: dict[str, tuple[ConfigEntry, ...]]
    compat: bool = False
    fleet: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The named configs, in the order of the file."""
        return tuple(self.configs)
