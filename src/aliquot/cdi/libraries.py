"""The driver's user-space files below a driver root: libraries, programs, sockets, firmware.

The list matches what ``nvidia-ctk cdi generate`` puts into containers: every library whose name ends with the running
driver's version, and the files below by name.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator

from aliquot.cdi.options import CdiMount

_ARCHITECTURES = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_LIBRARY_FOLDERS = (
    "/usr/lib64",
    *(f"/usr/lib/{a}" for a in _ARCHITECTURES),
    *(f"/usr/lib/{a}/nvidia/current" for a in _ARCHITECTURES),
    "/lib64",
    *(f"/lib/{a}" for a in _ARCHITECTURES),
    "/usr/lib",
    "/usr/local/nvidia/lib64",
)
_OTHER_LIBRARIES = (
    "libnvidia-nvvm70.so.*",
    *(f"libnvidia-egl-{name}.so.*.*" for name in ("gbm", "wayland", "wayland2", "xcb", "xlib")),
)
"""Libraries of the driver that have their own versions."""

_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRAMS = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    *("nvidia-imex", "nvidia-imex-ctl"),
)
_SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_SOCKET_OPTIONS = ("nosuid", "nodev", "noexec", "bind")
_CONFIGS = (
    *("glvnd/egl_vendor.d/10_nvidia.json", "egl/egl_external_platform.d/15_nvidia_gbm.json"),
    *("egl/egl_external_platform.d/10_nvidia_wayland.json", "egl/egl_external_platform.d/09_nvidia_wayland2.json"),
    *("egl/egl_external_platform.d/20_nvidia_xcb.json", "egl/egl_external_platform.d/20_nvidia_xlib.json"),
    *("nvidia/nvoptix.bin", "X11/xorg.conf.d/10-nvidia.conf", "X11/xorg.conf.d/nvidia-drm-outputclass.conf"),
)
_ETC_CONFIGS = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    "OpenCL/vendors/nvidia.icd",
)
_FIRMWARE = ("/lib/firmware/updates", "/lib/firmware")
_XORG = ("nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions")
_IMPLIED_LINKS = (
    ("libcuda.so.", "libcuda.so.1", "libcuda.so"),
    ("libGLX_nvidia.so.", "", "libGLX_indirect.so.0"),
    ("libnvidia-opticalflow.so.", "libnvidia-opticalflow.so.1", "libnvidia-opticalflow.so"),
)
"""Links that many programs rely on and packages leave out. Columns: prefix of a library's name, target ("" for the
library itself), link.
"""


class DriverRoot:
    """A directory tree that is the ``/`` of a system. An absolute link inside it refers to that system's root."""

    def __init__(self, local_root: str) -> None:
        self._local_root = local_root.rstrip("/")

    def real(self, path: str) -> str | None:
        """Return the path as that system sees it, with every link resolved, or None if it does not exist."""
        for _ in range(40):
            resolved, remaining = "", [w for w in path.split("/") if w]
            while remaining:
                word = remaining.pop(0)
                if word == "..":
                    resolved = resolved.rpartition("/")[0]
                    continue
                try:
                    target = os.readlink(f"{self._local_root}{resolved}/{word}")
                except FileNotFoundError:
                    return None
                except OSError:  # not a link
                    resolved = f"{resolved}/{word}"
                    continue
                path = "/".join([target if target.startswith("/") else f"{resolved}/{target}", *remaining])
                break
            else:
                return resolved or "/"
        return None

    def find(self, folder: str, pattern: str) -> list[str]:
        """Return the matching files of a folder, sorted, with paths as that system sees them."""
        found = glob.glob(pattern, root_dir=f"{self._local_root}{folder}")
        return [f"{folder}/{name}" for name in sorted(found)]

    def link(self, path: str) -> str | None:
        """Return the target of a link as written, or None if the path is not a link."""
        try:
            return os.readlink(f"{self._local_root}{path}")
        except OSError:
            return None

    def lines(self, path: str) -> list[str]:
        try:
            with open(f"{self._local_root}{path}", errors="replace") as file:
                return file.read().splitlines()
        except OSError:
            return []


class DriverFiles:
    """Driver files found below a root. ``host`` is the driver root as container runtimes see it."""

    def __init__(self, root: DriverRoot, host: str) -> None:
        self._root = root
        self._host = host.rstrip("/")
        self.mounts: list[CdiMount] = []
        self.links: list[tuple[str, str]] = []
        self.folders: list[str] = []

    def add_library(self, path: str) -> None:
        real = self._root.real(path)
        if real and not any(m.container == real for m in self.mounts):
            self.mounts.append(CdiMount(self._host + real, real))
            folder = os.path.dirname(real)
            if folder not in self.folders:
                self.folders.append(folder)

    def add_first(self, candidates: Iterable[str], container: str = "", options: tuple[str, ...] = ()) -> None:
        """Add the first candidate that exists."""
        for path in candidates:
            real = self._root.real(path)
            if real:
                mount = CdiMount(self._host + real, container or path)
                self.mounts.append(CdiMount(mount.host, mount.container, options) if options else mount)
                return


def find_driver_files(local_root: str, host: str, version: str) -> DriverFiles:
    """Return the files of a driver. ``local_root`` is its root as this process sees it, ``host`` as container runtimes
    see it.
    """
    root = DriverRoot(local_root)
    files = DriverFiles(root, host)
    for path in _versioned(root, version):
        files.add_library(path)
    _links(root, files)
    for name in _PROGRAMS:
        files.add_first(f"{folder}/{name}" for folder in _PROGRAM_FOLDERS)
    for name in _SOCKETS:
        files.add_first((f"/run/{name}", f"/var/run/{name}"), options=_SOCKET_OPTIONS)
    files.add_first(("/tmp/nvidia-mps",), options=_SOCKET_OPTIONS)
    for home, other, names in (("/usr/share", "/etc", _CONFIGS), ("/etc", "/usr/share", _ETC_CONFIGS)):
        for name in names:
            files.add_first((f"{home}/{name}", f"{other}/{name}"), container=f"{home}/{name}")
    for folder in (f"{f}/{x}" for f in (*files.folders, "/usr/lib", "/usr/lib64") for x in _XORG):
        files.add_first(root.find(folder, "nvidia_drv.so"))
        files.add_first(root.find(folder, f"libglxserver_nvidia.so.{version}"))
    for folder in _FIRMWARE:
        for path in root.find(f"{folder}/nvidia/{version}", "gsp*.bin"):
            files.add_first((path,))
    return files


def _versioned(root: DriverRoot, version: str) -> Iterator[str]:
    if not version:
        return
    folders = [f for f in dict.fromkeys((*_LIBRARY_FOLDERS, *_configured(root))) if root.real(f)]
    homes = [f for f in folders if root.find(f, f"lib*.so.{version}")]
    for folder in homes:
        for inside in (folder, f"{folder}/vdpau"):
            yield from root.find(inside, f"*.so.{version}")
        for pattern in _OTHER_LIBRARIES:
            yield from root.find(folder, pattern)


def _configured(root: DriverRoot) -> Iterator[str]:
    """Yield the folders in the configuration of the tree's own ldconfig."""
    for path in ("/etc/ld.so.conf", *root.find("/etc/ld.so.conf.d", "*.conf")):
        for line in root.lines(path):
            word = line.partition("#")[0].strip()
            if word.startswith("/"):
                yield word.rstrip("/")


def _links(root: DriverRoot, files: DriverFiles) -> None:
    """Add the links that programs open libraries by (``libcuda.so.1``), as on the host, and the implied ones."""
    libraries = {m.container for m in files.mounts}
    for folder in files.folders:
        for path in (*root.find(folder, "*.so*"), *root.find(f"{folder}/gbm", "*.so*")):
            target = root.link(path)
            if target is not None and root.real(path) in libraries:
                files.links.append((target, path))
    known_links = {link for _, link in files.links}
    for library in sorted(libraries):
        folder, _, name = library.rpartition("/")
        for start, target, link in _IMPLIED_LINKS:
            if name.startswith(start) and f"{folder}/{link}" not in known_links:
                files.links.append((target or name, f"{folder}/{link}"))
