"""Looks at the host for what a document needs beside the inventory."""

from __future__ import annotations

import os
import shutil

import msgspec

from aliquot.cdi import devices, libraries
from aliquot.cdi.options import COMPAT, NO_NODES, PROFILE, SIMULATED_MAJORS, CdiHost, CdiOptions
from aliquot.core.model.inventory import Inventory

_HOOKS = ("/usr/bin/nvidia-cdi-hook", "/usr/local/nvidia/toolkit/nvidia-cdi-hook", "/usr/local/bin/nvidia-cdi-hook")
"""Where packages and the GPU Operator put it."""
_HELP_TIMEOUT_S = 5.0


def probe_host(inventory: Inventory, options: CdiOptions) -> CdiOptions:
    """The options with ``machine`` filled in from the host, unless it is there already."""
    if options.host is not None:
        return options
    found = _simulated_host() if options.simulated else _real_host(inventory, options)
    return msgspec.structs.replace(options, host=found)


def _simulated_host() -> CdiHost:
    """A simulated node has nodes by number alone, and its library instead of a driver's files."""
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
    """The hook program's path, and what there is to say about it."""
    chosen = options.hook or os.environ.get("NVIDIA_CDI_HOOK_PATH", "")
    if chosen:
        return chosen, () if os.path.exists(chosen) else (f"{chosen} is not there as seen from here",)
    for path in (*_HOOKS, shutil.which("nvidia-cdi-hook") or ""):
        if path and os.access(path, os.X_OK):
            return path, ()
    return "", (
        "there is no nvidia-cdi-hook, which makes links and the loader's cache inside containers: libraries are "
        "mounted under their links' names instead, and LD_LIBRARY_PATH is set, which replaces one that an image sets. "
        "It comes with the package nvidia-container-toolkit-base",
    )


def _optional_hooks(hook: str, driver: str) -> dict[str, tuple[str, ...]]:
    """The newer commands that the program lists in its help, with their arguments; none where it cannot be run here."""
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
        notes.append("the kernel lists no nvidia-uvm: CUDA needs it; nvidia-modprobe -u loads it")
    return tuple(notes)
