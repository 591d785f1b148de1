"""The numbering of a node's GPUs, on disk, which maps SLURM_STEP_GPUS=2 to a device. Written together with gres.conf.

Slurm identifies the GRES of a task by ordinals in the node's list: type by type as in ``Gres=``, and by gres.conf's
lines within a type. It puts the ordinals into CUDA_VISIBLE_DEVICES, or with ConstrainDevices the positions among the
job's own GRES. For a MIG device, CUDA needs the UUID instead. A query of NVML in every task would take longer than many
tasks last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from aliquot.errors import StorageError
from aliquot.foundation import atomic_file
from aliquot.slurm.files.gres_conf import AutoDetect
from aliquot.slurm.files.job_devices import GresDevice, OfferedDevices

RUN_FOLDER = "/run/aliquot/slurm"
"""A reboot clears it, as it does MIG devices."""

RUN_FOLDER_VARIABLE = "ALIQUOT_SLURM_RUN"
"""Overrides the directory, for several clusters on one host."""


class Numbering(msgspec.Struct, frozen=True):
    """A node's devices by ordinal."""

    node: str
    devices: tuple[GresDevice, ...] = ()
    detected: bool = False
    """True if slurmd detects the devices (AutoDetect), in its own order. Then jobs get UUIDs from Slurm, and the
    ordinals here have no meaning.
    """

    @classmethod
    def from_offered(cls, node: str, offered: OfferedDevices, autodetect: AutoDetect = "none") -> Numbering:
        return cls(node, offered.devices, autodetect not in ("none", "off"))

    def devices_at(self, ordinals: tuple[int, ...]) -> tuple[GresDevice, ...]:
        """Return the devices of some ordinals; unknown ordinals are omitted."""
        return tuple(self.devices[n] for n in ordinals if n < len(self.devices)) if not self.detected else ()


def run_folder(environ: Mapping[str, str]) -> str:
    """Return the directory of the numberings."""
    return environ.get(RUN_FOLDER_VARIABLE) or RUN_FOLDER


def path(node: str, folder: str = RUN_FOLDER) -> str:
    return os.path.join(folder, f"{node}.json")


def read(node: str, folder: str = RUN_FOLDER) -> Numbering | None:
    """Return a node's numbering, or None if it does not exist or cannot be read.

    A name that leads to another directory counts as missing: names come from users' processes, and the caller may be
    root.
    """
    if os.sep in node or node.startswith("."):
        return None
    try:
        with open(path(node, folder), "rb") as file:
            return msgspec.json.decode(file.read(), type=Numbering)
    except (OSError, ValueError):
        return None


def read_all(folder: str = RUN_FOLDER) -> tuple[Numbering, ...]:
    """Return the numberings of all Slurm nodes of this host."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return ()
    found = (read(name.removesuffix(".json"), folder) for name in names)
    return tuple(each for each in found if each is not None)


def write(numbering: Numbering, folder: str = RUN_FOLDER) -> str:
    """Write a numbering atomically where all tasks can read it, and return its path. Raises StorageError."""
    target = path(numbering.node, folder)
    try:
        atomic_file.replace(target, msgspec.json.encode(numbering) + b"\n")
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"ls -ld {folder}"
        raise StorageError(f"cannot write {target}: {error.strerror or error}", next_step=step) from error
    return target
