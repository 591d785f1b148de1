"""The part of a checkpoint beyond mig-parted's format: virtual functions, vGPUs with functions and UUIDs, mixed-size
mode and passthrough. It has a key of its own, which is omitted if there is none of these.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.config.select.gpu_text import gpu_text
from aliquot.core.model.desired import DesiredGpu, DesiredVgpu, ResolutionFailure
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory
from aliquot.core.model.vgpu_scheduler import normal_scheduler, scheduler_of
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.errors import ConfigError

VERSION = "v1"
VFIO = "vfio-pci"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|")


class _Vgpu(msgspec.Struct, frozen=True, rename="pascal"):
    function: str
    type: str
    type_id: int = msgspec.field(name="TypeID")
    uuid: str = msgspec.field(name="UUID", default="")
    placement: int | None = None
    parameters: str | None = None


class _Gpu(msgspec.Struct, frozen=True, rename="pascal"):
    """``functions`` is the number of virtual functions, None on a GPU without SR-IOV."""

    pci: str = msgspec.field(name="PCI")
    uuid: str = msgspec.field(name="UUID", default="")
    passthrough: bool = False
    functions: int | None = None
    mixed_size: bool | None = None
    scheduler: str | None = None
    bound: tuple[str, ...] | None = None
    vgpus: tuple[_Vgpu, ...] | None = None


class Shares(msgspec.Struct, frozen=True, rename="pascal"):
    """The key ``Aliquot`` of a checkpoint."""

    version: str
    gpus: tuple[_Gpu, ...]

    def check(self, source: str) -> None:
        """Raise ConfigError for another version, and for values that Aliquot never writes."""
        if self.version != VERSION:
            raise ConfigError(f"{source} describes vGPUs in version {self.version!r}: Aliquot reads {VERSION!r}")
        pcis = [gpu.pci for gpu in self.gpus]
        for gpu in self.gpus:
            functions = [v.function for v in gpu.vgpus or ()]
            for address in (gpu.pci, *functions, *(gpu.bound or ())):
                _check_address(source, address)
            mine = [f for f in functions if f != gpu.pci]
            if pcis.count(gpu.pci) > 1 or len(set(mine)) < len(mine):
                raise ConfigError(f"{source} is not a checkpoint: it names {gpu.pci} or a function of it twice")
            wrong = next((v.uuid for v in gpu.vgpus or () if not _UUID.fullmatch(v.uuid)), None)
            if (
                wrong is not None
                or not _valid(gpu.scheduler)
                or (gpu.functions or 0) < 0
                or (gpu.passthrough and gpu.vgpus)
            ):
                raise ConfigError(f"{source} is not a checkpoint: its entry for {gpu.pci} is invalid")


def _valid(scheduler: str | None) -> bool:
    try:
        return scheduler is None or normal_scheduler(scheduler) == scheduler
    except ValueError:
        return False


def _check_address(source: str, text: str) -> None:
    try:
        fine = pci_address(text) == text
    except ValueError:
        fine = False
    if not fine:
        raise ConfigError(f"{source} is not a checkpoint: {text[:60]!r} is not a PCI address as the kernel writes it")


def shares(inventory: Inventory) -> dict[str, object] | None:
    """Return the key's value; None if no GPU has virtual functions, vGPUs or passthrough. If one has, the others are
    included too: that they have none is part of the state.
    """
    if not any(gpu.vgpus or gpu.passthrough or (gpu.virtual or GpuVirtualization()).enabled for gpu in inventory.gpus):
        return None
    recorded = [_gpu(gpu) for gpu in inventory.gpus if gpu.virtual is not None or gpu.vgpus or gpu.passthrough]
    return {"Version": VERSION, "Gpus": recorded}


def _gpu(gpu: Gpu) -> dict[str, object]:
    virtual = gpu.virtual or GpuVirtualization()
    bound = tuple(f.pci for f in virtual.functions if f.driver == VFIO)
    recorded = _Gpu(
        pci=gpu.pci,
        uuid=gpu.uuid,
        passthrough=gpu.passthrough,
        functions=len(virtual.functions) if virtual.total or virtual.functions else None,
        mixed_size=gpu.mixed_size if virtual.enabled else None,
        scheduler=scheduler_of(gpu) or None,
        bound=bound if virtual.enabled else None,
        vgpus=tuple(_Vgpu(v.function, v.type, v.type_id, v.uuid, v.placement, v.parameters) for v in gpu.vgpus) or None,
    )
    document: dict[str, object] = msgspec.to_builtins(recorded)
    return document


def add_shares(
    state: Shares, inventory: Inventory, desired_gpus: dict[str, DesiredGpu], source: str
) -> list[ResolutionFailure]:
    """Add the recorded shares to the desired GPUs, by PCI address, and return the failures.

    A share that this node cannot have is a failure: nothing is changed.
    """
    failures: list[ResolutionFailure] = []
    for recorded in state.gpus:
        gpu = _find(inventory, recorded)
        if gpu is None:
            sentence = f"{source}: no GPU {recorded.uuid or recorded.pci} on this node (it has {len(inventory.gpus)})"
            failures.append(ResolutionFailure("NO_SUCH_GPU", sentence, step="aliquot show"))
            continue
        found = _desired_gpu(inventory, gpu, recorded, source)
        if isinstance(found, ResolutionFailure):
            failures.append(found)
        else:
            previous = desired_gpus.get(gpu.pci, DesiredGpu(gpu.pci, None, None, source))
            desired_gpus[gpu.pci] = msgspec.structs.replace(
                previous,
                vgpus=found.vgpus,
                functions=found.functions,
                mixed_size=found.mixed_size,
                scheduler=found.scheduler,
                passthrough=found.passthrough,
                vfio_bound=found.vfio_bound,
                restoring=True,
            )
    return failures


def _find(inventory: Inventory, recorded: _Gpu) -> Gpu | None:
    """Find the GPU by its UUID, or by its address if one of the UUIDs is unknown."""
    by_uuid = next((gpu for gpu in inventory.gpus if recorded.uuid and gpu.uuid == recorded.uuid), None)
    by_address = next((gpu for gpu in inventory.gpus if gpu.pci == recorded.pci), None)
    return by_uuid or (by_address if by_address is not None and not (recorded.uuid and by_address.uuid) else None)


def _desired_gpu(inventory: Inventory, gpu: Gpu, recorded: _Gpu, source: str) -> DesiredGpu | ResolutionFailure:
    """Return the desired state of one GPU, without the part that mig-parted's format has."""
    if recorded.passthrough:
        off = False if gpu.virtual is not None and gpu.virtual.total else None
        return DesiredGpu(gpu.pci, None, None, vgpus=(), functions=off, passthrough=True)
    table = inventory.vgpu_table(gpu)
    vgpus: list[DesiredVgpu] = []
    for each in recorded.vgpus or ():
        known = table.by_name.get(each.type) if table is not None else None
        function = _relocated(each.function, recorded.pci, gpu)
        if known is None or known.id is None:
            sentence = f"{source}: {gpu_text(gpu)} has no vGPU type {each.type} that can be created here"
            return ResolutionFailure("WRONG_CARD", sentence, gpu.pci, f"aliquot vgpu types {gpu.index}")
        if not function:
            sentence = f"{source}: {gpu_text(gpu)} has no virtual function {each.function}"
            return ResolutionFailure("NO_FUNCTION", sentence, gpu.pci, f"aliquot show {gpu.index}")
        placement = None if known.mig_backed else each.placement
        vgpus.append(DesiredVgpu(known.id, known.name, function, each.uuid, placement, each.parameters))
    functions = None if recorded.functions is None else recorded.functions > 0
    bound = (
        None
        if recorded.bound is None
        else tuple(_relocated(function, recorded.pci, gpu) for function in recorded.bound)
    )
    return DesiredGpu(
        gpu.pci,
        None,
        None,
        vgpus=_with_reachable_placements(table, vgpus),
        functions=functions,
        mixed_size=recorded.mixed_size,
        scheduler=recorded.scheduler,
        passthrough=False,
        vfio_bound=None if bound is None else tuple(filter(None, bound)),
    )


def _with_reachable_placements(table: VgpuTable | None, vgpus: list[DesiredVgpu]) -> tuple[DesiredVgpu, ...]:
    """Return vGPUs without their placements in mixed-size mode if the driver never leads to these: after a vGPU is
    destroyed, the others may be where no order of creations puts them.
    """
    if table is None or all(v.placement is None for v in vgpus):
        return tuple(vgpus)
    from aliquot.core.planner.vgpu.matching import WantedVgpu
    from aliquot.core.planner.vgpu.placement_policies import MixedSizePolicy
    from aliquot.core.planner.vgpu.placement_search import find_vgpu_target

    items = [WantedVgpu(v, table.by_id[v.type_id]) for v in vgpus]
    if find_vgpu_target(MixedSizePolicy(table), items, ()) is not None:
        return tuple(vgpus)
    return tuple(msgspec.structs.replace(v, placement=None) for v in vgpus)


def _relocated(function: str, old_pci: str, gpu: Gpu) -> str:
    """Return the present address of a GPU's function: as far from the GPU's own address as before.

    Empty if the GPU has no function there. The routing id of a virtual function is that of the physical one plus an
    offset. Source: PCI Express SR-IOV, 3.3.9.
    """
    number = _number(gpu.pci) + _number(function) - _number(old_pci)
    place = f"{gpu.pci[:-7]}{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}" if 0 <= number <= 0xFFFF else ""
    addresses = (gpu.virtual or GpuVirtualization()).addresses
    return place if place in (gpu.pci, *addresses) or (place and not addresses) else ""


def _number(address: str) -> int:
    """Return the routing id of a PCI address: bus, device and function."""
    bus, device, function = address[-7:-5], address[-4:-2], address[-1]
    return int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
