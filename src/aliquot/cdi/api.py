"""Container Device Interface: what a container runtime adds to a container that asks for a GPU or MIG device.

``refresh`` after each change of geometry keeps the file right for Docker, Podman, containerd and CRI-O; ``retract``
takes it away. ``document`` is the pure part.
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
    """Write the document of what is now; the path of its file. Where no device is left to offer, a file of ours is
    taken away instead: CDI knows no empty document, and a stale one would hand out what is gone.

    The management document's file is replaced whoever wrote it: NVIDIA's container toolkit makes it at its start, and
    mig-manager, in whose place we are, after each change.

    Raises BlockedError (somebody else's file is there, and ``force`` is not given; or a device number is not known)
    and StorageError.
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
    """Take every file of ours away; their paths."""
    from aliquot.cdi import spec_files as write

    return tuple(path for path in write.own_files(directory) if write.remove(path))
