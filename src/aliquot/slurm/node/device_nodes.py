"""Creates missing device nodes of GPUs and capabilities: slurmd starts only if every ``File`` exists.

Follows nvidia-modprobe: majors from /proc/devices, GPU nodes open to all, capability nodes readable by all (the
kernel's DeviceFileMode). Nodes of destroyed instances stay, as with the driver.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from aliquot.cdi.devices import majors as machine_majors
from aliquot.cdi.options import SIMULATED_MAJORS, CdiDeviceNode, Majors
from aliquot.core.model.inventory import Gpu
from aliquot.errors import BlockedError, StorageError
from aliquot.foundation import atomic_file
from aliquot.slurm.files import slot_board as board
from aliquot.slurm.files.fence import ADMIN, has_instances

MARKER_MAJOR = 60
"""The major of a slot board's markers. Linux reserves 60 to 63 for local use, and assigns them to no driver."""
_MODES = {1: 0o400, 2: 0o444}
"""The driver's modes of the administrators' capabilities."""


def needed(gpus: Iterable[Gpu], majors: Majors, *, fence: bool = False) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes in gres.conf's lines for these GPUs, and nvidiactl, which every client opens first.

    With ``fence``, includes the administrators' capabilities, with the driver's modes.
    """
    found = [CdiDeviceNode("/dev/nvidiactl", majors.gpu, 255)]
    gpus = list(gpus)
    if fence and has_instances(gpus):
        found += [_capability(m, majors) for m in ADMIN]
    for gpu in gpus:
        if gpu.minor < 0 or gpu.passthrough:
            continue
        found.append(CdiDeviceNode(f"/dev/nvidia{gpu.minor}", majors.gpu, gpu.minor))
        for instance in gpu.instances:
            minors = (instance.capability_minor, *(c.capability_minor for c in instance.compute_instances))
            found += [_capability(m, majors) for m in minors if m > max(ADMIN)]
    return tuple(found)


def needed_by_board(gpus: Iterable[Gpu], records: int, majors: Majors) -> tuple[CdiDeviceNode, ...]:
    """Return the nodes in the lines of a slot board: the GPUs, all of their capabilities, and a marker per record."""
    present = [gpu for gpu in gpus if gpu.minor >= 0 and not gpu.passthrough]
    return (
        CdiDeviceNode("/dev/nvidiactl", majors.gpu, 255),
        *(CdiDeviceNode(f"/dev/nvidia{gpu.minor}", majors.gpu, gpu.minor) for gpu in present),
        *(_capability(minor, majors) for minor in board.capabilities(present)),
        *(CdiDeviceNode(board.marker("/dev", slot), MARKER_MAJOR, slot, 0o444) for slot in range(records)),
    )


def _capability(minor: int, majors: Majors) -> CdiDeviceNode:
    return CdiDeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", majors.caps, minor, _MODES.get(minor, 0o444))


def make(
    gpus: Iterable[Gpu], dev_root: str, *, simulated: bool, fence: bool = False, records: int = 0
) -> tuple[str, ...]:
    """Create missing nodes below ``dev_root``, and return their paths. ``fence`` is that of ``needed``.

    ``records`` is the number of records of a slot board, 0 for another node. Raises BlockedError for an existing node
    with other numbers, or if the kernel lists no capability devices. Raises StorageError if a node cannot be created.
    """
    majors = SIMULATED_MAJORS if simulated else machine_majors()
    nodes = needed_by_board(gpus, records, majors) if records else needed(gpus, majors, fence=fence)
    return tuple(node.path for node in nodes if _make(node, dev_root.rstrip("/")))


def _make(node: CdiDeviceNode, root: str) -> bool:
    path = f"{root}{node.path}"
    if node.major < 0:
        raise BlockedError(
            f"the kernel lists no device for {node.path}: check that the nvidia module is loaded",
            code="NO_KERNEL_DEVICE",
            next_step="grep nvidia /proc/devices",
        )
    device = os.makedev(node.major, node.minor)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _made(path, node.mode, device)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}", next_step=f"ls -l {path}") from error
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != device:
        is_now = f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}" if stat.S_ISCHR(found.st_mode) else "no device"
        raise BlockedError(
            f"{path} is not the driver's device ({is_now}, not {node.major}:{node.minor})",
            code="FOREIGN_DEVICE",
            details=("It is left over from another load of the module, or was created manually.",),
            next_step=f"rm {path}",
        )
    return False


def _made(path: str, mode: int, device: int) -> bool:
    temporary = f"{path}.aliquot.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        os.mknod(temporary, stat.S_IFCHR | mode, device)
        os.chmod(temporary, mode)  # mknod applies the umask
        atomic_file.rename(temporary, path)
    except OSError as error:
        step = "run it as root" if isinstance(error, PermissionError) else f"ls -l {os.path.dirname(path)}"
        raise StorageError(f"cannot create {path}: {error.strerror or error}", next_step=step) from error
    return True
