"""Container Device Interface (CDI): device specs for container runtimes, for GPUs and MIG devices.

Call ``refresh`` after each change of geometry to keep the file correct for Docker, Podman, containerd and CRI-O.
``retract`` removes it. ``document`` is the pure part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.cdi.options import CdiOptions

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory

DIRECTORY = "/var/run/cdi"

__all__ = ["DIRECTORY", "CdiOptions", "refresh", "retract"]


def refresh(
    inventory: Inventory, options: CdiOptions | None = None, directory: str = DIRECTORY, *, force: bool = False
) -> str:
    """Write the document for the current inventory and return the path of its file. If no device is left to offer,
    remove our file instead: CDI allows no empty document, and a stale one would name devices that no longer exist.

    The file of the management document is replaced even if another program wrote it. NVIDIA's container toolkit writes
    it at its start, and mig-manager, which Aliquot replaces, after each change.

    Raises BlockedError if the file belongs to another program and ``force`` is not given, or if a device number is
    unknown. Raises StorageError if the file cannot be written.
    """
    import os

    from aliquot.cdi import spec_files as write
    from aliquot.cdi.probe import probe_host
    from aliquot.cdi.spec import document

    chosen = options or CdiOptions()
    path = os.path.join(directory, chosen.file_name)
    made = document(inventory, probe_host(inventory, chosen))
    if made["devices"]:
        write.write(path, made, force=force, shared=chosen.mode == "management")
    elif path in write.own_files(directory):
        write.remove(path)
    return path


def retract(directory: str = DIRECTORY) -> tuple[str, ...]:
    """Remove all our files and return their paths."""
    from aliquot.cdi import spec_files as write

    return tuple(path for path in write.own_files(directory) if write.remove(path))
