"""Kernel facts about device nodes: majors, /dev/dri nodes, and nodes that only the management document has."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from aliquot.cdi.options import CdiDeviceNode, Majors


def majors(root: str = "/") -> Majors:
    """Return the major numbers in ``/proc/devices`` below a root; -1 for a device that the kernel does not list."""
    listed: dict[str, int] = {}
    try:
        with open(os.path.join(root, "proc/devices")) as file:
            for line in file:
                words = line.split()
                if line.startswith("Block"):
                    break
                if len(words) == 2 and words[0].isdigit():
                    listed.setdefault(words[1], int(words[0]))
    except OSError:
        return Majors()
    gpu = listed.get("nvidia", listed.get("nvidia-frontend", Majors().gpu))
    return Majors(gpu=gpu, uvm=listed.get("nvidia-uvm", -1), caps=listed.get("nvidia-caps", -1))


def drm(addresses: Iterable[str], root: str = "/") -> dict[str, tuple[CdiDeviceNode, ...]]:
    """Return the ``/dev/dri`` nodes of GPUs by PCI address, from sysfs below a root."""
    found = {pci: tuple(_drm(os.path.join(root, f"sys/bus/pci/devices/{pci}/drm"))) for pci in addresses}
    return {pci: nodes for pci, nodes in found.items() if nodes}


def _drm(folder: str) -> list[CdiDeviceNode]:
    nodes = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        try:
            with open(os.path.join(folder, name, "dev")) as file:
                major, _, minor = file.read().strip().partition(":")
        except OSError:
            continue
        if major.isdigit() and minor.isdigit():
            nodes.append(CdiDeviceNode(f"/dev/dri/{name}", int(major), int(minor), 0o660))
    return nodes


def extras(root: str = "/") -> tuple[CdiDeviceNode, ...]:
    """Return the IMEX channels below a root's ``/dev``."""
    folder = "/dev/nvidia-caps-imex-channels"
    try:
        names = sorted(os.listdir(root.rstrip("/") + folder))
    except OSError:
        return ()
    return tuple(n for n in (node(f"{folder}/{name}", root) for name in names) if n is not None)


def node(path: str, root: str = "/") -> CdiDeviceNode | None:
    """Return a character device that exists below a root, or None."""
    try:
        facts = os.stat(root.rstrip("/") + path)
    except OSError:
        return None
    if not stat.S_ISCHR(facts.st_mode):
        return None
    return CdiDeviceNode(path, os.major(facts.st_rdev), os.minor(facts.st_rdev), stat.S_IMODE(facts.st_mode))
