"""Slurm's numbers of a node's GPUs, on disk: what makes SLURM_STEP_GPUS=2 a device. Written whenever gres.conf is.

Slurm tells a task which GRES of the node it has as ordinals in the node's list (type by type as ``Gres=`` lists them,
gres.conf's lines within one), and puts the same, or with ConstrainDevices the position among the job's own, into
CUDA_VISIBLE_DEVICES. CUDA takes neither for a MIG device: it wants the UUID. Asking NVML for it in every task would
cost more than many tasks last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.slurm.files.job_devices import GresDevice, OfferedDevices

RUN_FOLDER = "/run/aliquot/slurm"
"""Goes with a reboot, as MIG devices do."""

RUN_FOLDER_VARIABLE = "ALIQUOT_SLURM_RUN"
"""Another place, for several worlds on one machine."""


class Numbering(msgspec.Struct, frozen=True):
    """A node's devices by their ordinal. ``detected``: slurmd found them by itself (AutoDetect), in its own order; then
    jobs get UUIDs from Slurm, and the ordinals here mean nothing.
    """

    node: str
    devices: tuple[GresDevice, ...] = ()
    detected: bool = False

    @classmethod
    def from_offered(cls, node: str, offered: OfferedDevices, autodetect: str = "none") -> Numbering:
        return cls(node, offered.devices, autodetect not in ("none", "off"))

    def devices_at(self, ordinals: tuple[int, ...]) -> tuple[GresDevice, ...]:
        """The devices of these ordinals; those that there are none of are left out."""
        return tuple(self.devices[n] for n in ordinals if n < len(self.devices)) if not self.detected else ()


def run_folder(environ: Mapping[str, str]) -> str:
    """Where numberings lie."""
    return environ.get(RUN_FOLDER_VARIABLE) or RUN_FOLDER


def path(node: str, folder: str = RUN_FOLDER) -> str:
    return os.path.join(folder, f"{node}.json")


def read(node: str, folder: str = RUN_FOLDER) -> Numbering | None:
    """A node's numbering; None where there is none, or none that can be read. A name that leads elsewhere is none:
    users' processes say such names, and whoever asks may be root.
    """
    if os.sep in node or node.startswith("."):
        return None
    try:
        with open(path(node, folder), "rb") as file:
            return msgspec.json.decode(file.read(), type=Numbering)
    except (OSError, ValueError):
        return None


def read_all(folder: str = RUN_FOLDER) -> tuple[Numbering, ...]:
    """The numberings of all Slurm nodes of this host."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return ()
    found = (read(name.removesuffix(".json"), folder) for name in names)
    return tuple(each for each in found if each is not None)


def write(numbering: Numbering, folder: str = RUN_FOLDER) -> str:
    """Put it where every job's tasks can read it, whole or not at all; its path. Raises StorageError."""
    target = path(numbering.node, folder)
    try:
        atomic_file.replace(target, msgspec.json.encode(numbering) + b"\n")
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"ls -ld {folder}"
        raise StorageError(f"cannot write {target}: {error.strerror or error}", next_step=step) from error
    return target
