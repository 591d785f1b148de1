"""What a CDI document depends on beside the inventory: choices, and what was found on the machine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

MARKER_VARIABLE = "ALIQUOT_CDI"
"""A variable that every document of ours sets in its containers, so that we know our files again. Annotations would be
the place for it, but they came with CDI 0.6.0, which the container tools of Debian 12 and RHEL 8 refuse to read. Its
value is the form of the document, then the choices that its devices need not show.
"""
WHOLE_MIG = "whole-mig-gpus"
"""Such a choice: while no GPU is in MIG mode, the devices are the same without it."""

SIMULATED_MOUNT_PATH = "/run/aliquot-sim"
"""Where a container finds the folder of a simulated node: its NVML library with the socket beside it. The library knows
by this place that it is in a container, and shows what the container's device nodes open (``shim/container_access.c``).
"""


COMPAT, NO_NODES, PROFILE = "enable-cuda-compat", "disable-device-node-modification", "update-application-profile"
"""What newer releases have beside links and the loader's cache: libcuda of an image that is newer than the host's
driver (since 1.17.5), no device nodes made by nvidia-smi in a container (1.17.8), and EGL and Vulkan that see
only the container's GPUs (1.20). Only those that the hook program's help lists are called.
"""


class Majors(msgspec.Struct, frozen=True):
    """Major numbers of character devices; -1 where the kernel lists none. 195 is NVIDIA's own (LANANA), the others are
    given out when the modules are loaded.
    """

    gpu: int = 195
    uvm: int = -1
    caps: int = -1


SIMULATED_MAJORS = Majors(gpu=120, uvm=121, caps=122)
"""Majors of a simulated node's device nodes. Linux reserves 120-127 for local use and gives them to no driver, so that
no container is ever let near a real device (kernel documentation, admin-guide/devices.txt).
``shim/container_access.c`` has the same numbers.
"""


class CdiDeviceNode(msgspec.Struct, frozen=True):
    """A device node. It need not exist on the host: runtimes make it from its numbers. ``host`` is where it lies on
    the host, if elsewhere.
    """

    path: str
    major: int
    minor: int
    mode: int = 0o666
    host: str = ""


class CdiMount(msgspec.Struct, frozen=True):
    """A file, socket or folder of the host that containers see."""

    host: str
    container: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")


class CdiHost(msgspec.Struct, frozen=True):
    """What was found on the host (see ``libraries`` and ``devices``). ``links`` are (what it points at, path of the
    link); ``folders`` those with libraries; ``drm`` the /dev/dri nodes by PCI address; ``extras`` nodes that only the
    management document hands out; ``hook`` the nvidia-cdi-hook program, "" for none; ``hooks`` the arguments of its
    newer commands, those that it has, by their names.
    """

    majors: Majors = Majors()
    mounts: tuple[CdiMount, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    drm: dict[str, tuple[CdiDeviceNode, ...]] = {}
    extras: tuple[CdiDeviceNode, ...] = ()
    modeset: bool = False
    hook: str = ""
    hooks: Mapping[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


class CdiOptions(msgspec.Struct, frozen=True):
    """Choices. ``driver_root`` and ``dev_root`` are as container runtimes see them; the ``_here`` ones as this process
    sees them, where that differs (an agent in a container). ``simulated`` is the folder of a simulated node, "" for
    a real machine. ``host`` None means: look when the document is made.
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
    host: CdiHost | None = None

    @property
    def kind(self) -> str:
        """``vendor/class``: nvidia.com/gpu, or management.nvidia.com/gpu, if no other vendor was chosen."""
        usual = "management.nvidia.com" if self.mode == "management" else "nvidia.com"
        return f"{self.vendor or usual}/{self.class_name}"

    @property
    def file_name(self) -> str:
        """The name of the document's file, as CDI recommends it: vendor and class."""
        return self.kind.replace("/", "-") + ".yaml"
