"""The slot board of a Slurm node: a constant number of ``gpu`` records, one per MIG slot of its GPUs. Pure.

Slurm keeps a running job through a change of GRES types if two things stay: the node's number of ``gpu`` records, and
the index of the job's records. So each GPU has a record for every memory slice at which an instance can start. A record
has the type of the instance that starts there, else the type ``pad``:

    slot = first slot of the GPU + start of the instance's placement

The first file of each record is a marker, a device without a driver. An empty ``fake_gpus.conf`` beside slurm.conf
makes slurmd sort the records by their first file. So the index of a record is its slot, whatever its type is.

The last record is always a pad. It has all capabilities that no instance uses, those of administrators included. No job
can open them, so an instance that is created later is closed to the jobs that run already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.conf import hostlist
from aliquot.slurm.files.fence import ADMIN
from aliquot.slurm.files.job_devices import GresChoice, GresDevice, OfferedDevices, offered_devices
from aliquot.slurm.gpus.cores import ranges

ORDER_FILE = "fake_gpus.conf"
"""The empty file beside slurm.conf by which slurmd sorts explicit records by their first file. SchedMD made it for
tests of Slurm, and documents it nowhere, so the order is proved with ``slurmd -G`` before each use.
"""
PAD = "pad"
"""The type of records that stand for no instance."""

FOLDER = "aliquot"
"""The directory of the markers, below that of the device nodes."""

CAPABILITIES = 135
"""Capabilities of a GPU: those of 15 GPU instances, each with 8 compute instances."""
_FIRST = 3


def slot_board(inventory: Inventory, choice: GresChoice | None = None) -> OfferedDevices:
    """Return the records of a node by slot, the pads among them.

    Raises BlockedError if a GPU is missing, if two devices have one slot, or if a device's nodes cannot be named.
    """
    chosen = choice or GresChoice()
    _refuse_missing(inventory, chosen.gpus)
    offered = offered_devices(inventory, replace(chosen, fence=False))
    placed = dict(_placed(inventory, offered.devices, chosen))
    total = sum(slots(inventory, gpu) for gpu in board_gpus(inventory, chosen.gpus))
    records = [_record(slot, placed.get(slot), chosen.dev) for slot in range(total)]
    last = _record(total, None, chosen.dev)
    last = replace(last, files=(*last.files, *_unused(inventory, records, chosen.dev)))
    return OfferedDevices((*records, last), offered.notes, offered.visible)


def board_gpus(inventory: Inventory, pcis: Sequence[str] | None = None) -> tuple[Gpu, ...]:
    """Return the GPUs of a board in the order of their slots. None for ``pcis`` means all GPUs."""
    return tuple(sorted((g for g in inventory.gpus if pcis is None or g.pci in pcis), key=lambda gpu: gpu.pci))


def slots(inventory: Inventory, gpu: Gpu) -> int:
    """Return the number of slots of a GPU, whatever instances it has now. It is 1 without MIG."""
    if not gpu.mig.capable or gpu.family is None:
        return 1
    return 1 + max(
        start + inner
        for profile in inventory.family(gpu).by_name.values()
        for start in profile.starts
        for compute in profile.compute
        for inner in compute.starts
    )


def first_slots(inventory: Inventory, pcis: Sequence[str] | None = None) -> dict[str, int]:
    """Return the first slot of each GPU of a board, by PCI address."""
    found: dict[str, int] = {}
    total = 0
    for gpu in board_gpus(inventory, pcis):
        found[gpu.pci] = total
        total += slots(inventory, gpu)
    return found


def marker(dev: str, slot: int) -> str:
    """Return the marker of a slot. All have the same width, so that every way to sort them gives one order."""
    return f"{dev}/{FOLDER}/slot{slot:03}"


def is_marker(path: str) -> bool:
    """Report whether a path is the marker of a slot."""
    return f"/{FOLDER}/slot" in path


def is_board(lines: Iterable[str]) -> bool:
    """Report whether a node's lines in gres.conf are a slot board."""
    return any(f" Type={PAD} " in line and is_marker(line) for line in lines)


def records(lines: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return type and files of each line of a board, a host list of files as one word."""
    found = []
    for line in lines:
        words = dict(word.partition("=")[::2] for word in line.split())
        found.append((words.get("Type", ""), hostlist.split(words.get("MultipleFiles") or words.get("File", ""))))
    return tuple(found)


def changed_slots(before: Sequence[str], after: Sequence[str]) -> tuple[int, ...]:
    """Return the slots whose lines differ. The line of a slot has the slot's number in the list."""
    if len(before) != len(after):
        return tuple(range(max(len(before), len(after))))
    return tuple(slot for slot, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)


def capabilities(gpus: Iterable[Gpu]) -> tuple[int, ...]:
    """Return the minors of all capabilities that instances of these GPUs can have, and of administrators, ascending."""
    found = set(ADMIN)
    for gpu in gpus:
        if gpu.minor >= 0 and gpu.mig.capable and not gpu.passthrough:
            first = _FIRST + CAPABILITIES * gpu.minor
            found.update(range(first, first + CAPABILITIES))
    return tuple(sorted(found)) if len(found) > len(ADMIN) else ()


def missing_gpu(what: str) -> BlockedError:
    """Return the error for a board that would lose slots, so that all jobs on later ones would get other devices."""
    return BlockedError(
        f"{what}: the slots of a board are constant, and jobs run on the others",
        details=(
            "A reset or a reboot may bring the GPU back. Jobs on the other GPUs go on until then.",
            "If it was removed for good, apply once without --slots, then with --slots, while the node is empty.",
        ),
        next_step="aliquot show",
        code="MISSING_GPU",
    )


def _refuse_missing(inventory: Inventory, pcis: Sequence[str] | None) -> None:
    """Raise BlockedError if a GPU of a board fell off the bus, or does not exist."""
    lost = [gpu for gpu in inventory.gpus if gpu.lost and (pcis is None or gpu.pci in pcis)]
    if lost:
        raise missing_gpu(f"GPU {lost[0].index} ({lost[0].pci}) fell off the bus")
    absent = sorted(set(pcis or ()) - {gpu.pci for gpu in inventory.gpus})
    if absent:
        raise missing_gpu(f"GPU {absent[0]} is not on this host")


def _placed(
    inventory: Inventory, devices: Iterable[GresDevice], choice: GresChoice
) -> Iterator[tuple[int, GresDevice]]:
    """Yield each device with its slot. Raises BlockedError if two have the same."""
    first = first_slots(inventory, choice.gpus)
    taken: dict[int, GresDevice] = {}
    for device in devices:
        slot = first[device.pci] + _start(inventory.gpu(device.pci), device)
        other = taken.setdefault(slot, device)
        if other is not device:
            raise BlockedError(
                f"slot {slot} of GPU {device.gpu} would be a {other.type} and a {device.type}",
                details=("A slot board needs compute instances that start at different slices.",),
                next_step="aliquot show",
                code="SAME_SLOT",
            )
        yield slot, device


def _start(gpu: Gpu, device: GresDevice) -> int:
    """Return the first slice of a device on its GPU: that of its GPU instance plus that of its compute instance."""
    instance = next((each for each in gpu.instances if each.id == device.instance), None)
    if instance is None:
        return 0
    compute = next(each for each in instance.compute_instances if each.id == device.compute)
    return instance.place.start + compute.place.start


def _record(slot: int, device: GresDevice | None, dev: str) -> GresDevice:
    own = marker(dev, slot)
    if device is None:
        return GresDevice(PAD, (own,), uuid="", pci="", gpu=-1, minor=-1)
    return replace(device, files=(own, *device.files))


def _unused(inventory: Inventory, records: Iterable[GresDevice], dev: str) -> Iterator[str]:
    """Yield the files of the last record: GPUs without a record, then the unused capabilities as one host list."""
    taken = {file for record in records for file in record.files}
    for gpu in inventory.gpus:
        file = f"{dev}/nvidia{gpu.minor}"
        if gpu.minor >= 0 and not gpu.passthrough and file not in taken:
            yield file
    stem = f"{dev}/nvidia-caps/nvidia-cap"
    unused = [minor for minor in capabilities(inventory.gpus) if f"{stem}{minor}" not in taken]
    if unused:
        yield f"{stem}[{ranges(unused)}]"
