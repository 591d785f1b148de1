"""Probe of the host for what a document needs beside the inventory."""

from __future__ import annotations

import os
import shutil

import msgspec

from aliquot.cdi import devices, libraries
from aliquot.cdi.options import COMPAT, NO_NODES, PROFILE, SIMULATED_MAJORS, CdiHost, CdiOptions
from aliquot.core.model.inventory import Inventory

_HOOKS = ("/usr/bin/nvidia-cdi-hook", "/usr/local/nvidia/toolkit/nvidia-cdi-hook", "/usr/local/bin/nvidia-cdi-hook")
"""Where packages and the GPU Operator install the program."""
_HELP_TIMEOUT_S = 5.0


def probe_host(inventory: Inventory, options: CdiOptions) -> CdiOptions:
    """Return the options with ``host`` filled in, unless it is set already."""
    if options.host is not None:
        return options
    found = _simulated_host() if options.simulated else _real_host(inventory, options)
    return msgspec.structs.replace(options, host=found)


def _simulated_host() -> CdiHost:
    """Return the facts of a simulated node: nodes by number only, and its library instead of a driver's files."""
    return CdiHost(majors=SIMULATED_MAJORS)


def _real_host(inventory: Inventory, options: CdiOptions) -> CdiHost:
    local_root = options.local_driver_root or options.driver_root
    local_dev_root = options.local_dev_root or options.dev_root or "/"
    files = libraries.find_driver_files(local_root, options.driver_root, inventory.driver)
    hook, about_hook = _hook(options)
    majors = devices.majors()
    return CdiHost(
        majors=majors,
        mounts=tuple(files.mounts),
        links=tuple(files.links),
        folders=tuple(files.folders),
        drm=devices.drm(gpu.pci for gpu in inventory.gpus),
        extras=devices.extras(local_dev_root),
        modeset=devices.node("/dev/nvidia-modeset", local_dev_root) is not None,
        hook=hook,
        hooks=_optional_hooks(hook, inventory.driver),
        notes=(*about_hook, *_notes(inventory, local_root, files, majors.uvm)),
    )


def _hook(options: CdiOptions) -> tuple[str, tuple[str, ...]]:
    """Return the hook program's path, and notes about it."""
    chosen = options.hook or os.environ.get("NVIDIA_CDI_HOOK_PATH", "")
    if chosen:
        return chosen, () if os.path.exists(chosen) else (f"this process cannot see {chosen}",)
    for path in (*_HOOKS, shutil.which("nvidia-cdi-hook") or ""):
        if path and os.access(path, os.X_OK):
            return path, ()
    return "", (
        "nvidia-cdi-hook is not installed, so containers get no library links and no loader cache: libraries are "
        "mounted under the names of their links, and LD_LIBRARY_PATH is set, which replaces the image's own value. "
        "The package nvidia-container-toolkit-base has nvidia-cdi-hook",
    )


def _optional_hooks(hook: str, driver: str) -> dict[str, tuple[str, ...]]:
    """Return the newer commands that the program's help lists, with their arguments; none if it cannot be run."""
    from aliquot.foundation import bounded_process

    words = [hook, "hook", "--help"] if os.path.basename(hook) == "nvidia-ctk" else [hook, "--help"]
    if not hook or not os.access(hook, os.X_OK):
        return {}
    try:
        listed = set(bounded_process.run(words, _HELP_TIMEOUT_S).out.replace(",", " ").split())
    except OSError:  # a TimeoutError too
        return {}
    arguments = {COMPAT: (f"--host-driver-version={driver}",), NO_NODES: (), PROFILE: ()}
    return {name: words for name, words in arguments.items() if name in listed and (driver or name != COMPAT)}


def _notes(inventory: Inventory, local_root: str, files: libraries.DriverFiles, uvm: int) -> tuple[str, ...]:
    notes = []
    if not any("/libcuda.so." in m.container for m in files.mounts):
        version = inventory.driver or "an unknown version"
        notes.append(
            f"no libcuda.so of driver {version} below {local_root}: containers get device nodes, but cannot use CUDA"
        )
    if uvm < 0:
        notes.append("the kernel lists no nvidia-uvm, which CUDA needs: run nvidia-modprobe -u to load it")
    return tuple(notes)
