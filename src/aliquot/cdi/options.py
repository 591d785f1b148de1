"""Inputs of a CDI document beside the inventory: options, and facts found on the host."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MARKER_VARIABLE = "ALIQUOT_CDI"
"""The variable that every document of ours sets in its containers, by which Aliquot recognizes its own files.
Annotations would fit better, but they came with CDI 0.6.0, which the container tools of Debian 12 and RHEL 8 refuse to
read. The value is the form of the document, followed by the options that its devices need not show.
"""
WHOLE_MIG = "whole-mig-gpus"
"""Such an option: while no GPU is in MIG mode, the devices are the same without it."""

SIMULATED_MOUNT_PATH = "/run/aliquot-sim"
"""The mount path of a simulated node's folder in a container: its NVML library, with the socket beside it. From this
path the library infers that it runs in a container, and shows what the container's device nodes open
(``shim/container_access.c``).
"""


COMPAT, NO_NODES, PROFILE = "enable-cuda-compat", "disable-device-node-modification", "update-application-profile"
"""Hook commands of newer releases, in addition to links and the loader cache. Aliquot calls only those that the help of
the hook program lists.

- COMPAT (since 1.17.5): use the image's libcuda if it is newer than the host's driver.
- NO_NODES (since 1.17.8): nvidia-smi makes no device nodes in a container.
- PROFILE (since 1.20): EGL and Vulkan see only the container's GPUs.
"""


class Majors(msgspec.Struct, frozen=True):
    """Major numbers of character devices; -1 if the kernel lists none. 195 is NVIDIA's own (LANANA). The kernel assigns
    the others when the modules are loaded.
    """

    gpu: int = 195
    uvm: int = -1
    caps: int = -1


SIMULATED_MAJORS = Majors(gpu=120, uvm=121, caps=122)
"""Majors of a simulated node's device nodes. Linux reserves 120-127 for local use and assigns them to no driver, so a
container never gets access to a real device (kernel documentation, admin-guide/devices.txt).
``shim/container_access.c`` has the same numbers.
"""


class CdiDeviceNode(msgspec.Struct, frozen=True):
    """A device node. It need not exist on the host: runtimes create it from its numbers."""

    path: str
    major: int
    minor: int
    mode: int = 0o666
    host: str = ""
    """The path on the host, if it differs."""


class CdiMount(msgspec.Struct, frozen=True):
    """A file, socket or folder of the host that containers see."""

    host: str
    container: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")


class CdiHost(msgspec.Struct, frozen=True):
    """Facts found on the host (see ``libraries`` and ``devices``)."""

    majors: Majors = Majors()
    mounts: tuple[CdiMount, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of link target and link path."""
    folders: tuple[str, ...] = ()
    """Folders with libraries."""
    drm: dict[str, tuple[CdiDeviceNode, ...]] = {}
    """The /dev/dri nodes by PCI address."""
    extras: tuple[CdiDeviceNode, ...] = ()
    """Nodes that only the management document has."""
    modeset: bool = False
    hook: str = ""
    """The nvidia-cdi-hook program, or ""."""
    hooks: Mapping[str, tuple[str, ...]] = {}
    """Arguments of the newer commands that the hook program has, by command."""
    notes: tuple[str, ...] = ()


class CdiOptions(msgspec.Struct, frozen=True):
    """Options of a document. ``driver_root`` and ``dev_root`` are paths as container runtimes see them. The ``local_``
    ones are as this process sees them, if that differs (an agent in a container).
    """

    vendor: str = ""
    class_name: str = "gpu"
    names: tuple[str, ...] = ("uuid", "index", "place")
    mode: str = "workload"
    all_device: bool = True
    whole_mig: bool = False
    driver_root: str = "/"
    local_driver_root: str = ""
    dev_root: str = ""
    local_dev_root: str = ""
    hook: str = ""
    simulated: str = ""
    """The folder of a simulated node, or "" for a real host."""
    host: CdiHost | None = None
    """If None, the host is probed when the document is built."""

    @property
    def kind(self) -> str:
        """``vendor/class``: nvidia.com/gpu, or management.nvidia.com/gpu, unless another vendor was chosen."""
        usual = "management.nvidia.com" if self.mode == "management" else "nvidia.com"
        return f"{self.vendor or usual}/{self.class_name}"

    @property
    def file_name(self) -> str:
        """The name of the document's file, as CDI recommends it: vendor and class."""
        return self.kind.replace("/", "-") + ".yaml"
