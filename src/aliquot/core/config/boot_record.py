"""The boot record: the last request for each GPU, as a document that survives a reboot, and its replay.

A reboot removes virtual functions, vGPUs, GPU instances and passthrough, and on most families MIG mode too. The
requests must be on disk to be applied again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu, ResolutionFailure
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory
from aliquot.core.model.vgpu_scheduler import meets as meets_scheduler
from aliquot.core.model.vgpu_scheduler import scheduler_of, without_slice
from aliquot.core.planner.compute_grouping import same_instances
from aliquot.core.planner.vgpu.drift import meets

NAME = "the record"
VFIO = "vfio-pci"


class RecordedRequest(msgspec.Struct, frozen=True):
    """The last request for one GPU. ``uuid`` finds it again if its address changed; ``name`` is the named config."""

    desired: DesiredGpu = msgspec.field(name="wish")
    uuid: str = ""
    name: str = ""


class BootRecord(msgspec.Struct, frozen=True):
    """The recorded requests for the GPUs of a node."""

    gpus: tuple[RecordedRequest, ...] = ()


def merge_requests(
    previous: Iterable[RecordedRequest], desired: Desired, after: Inventory
) -> tuple[RecordedRequest, ...]:
    """Return the requests to record once a desired state is reached: the new one for the GPUs that it names, the
    previous one for the others. ``after`` is the inventory at that time.
    """
    gpus = {gpu.pci: gpu for gpu in after.gpus}
    uuids = {gpu.pci: gpu.uuid for gpu in after.gpus}
    rest = {_current_address(k, uuids): _possible(k, after.driver) for k in previous}
    merged = []
    for desired_gpu in desired.gpus:
        old = rest.pop(desired_gpu.pci, None)
        full = (
            _merge(old.desired, desired_gpu, gpus[desired_gpu.pci]) if old and desired_gpu.pci in gpus else desired_gpu
        )
        if desired_gpu.pci in gpus:
            full = _with_parameters(full, gpus[desired_gpu.pci])
        merged.append(RecordedRequest(full, uuids.get(desired_gpu.pci, ""), desired.name))
    return tuple(sorted([*merged, *rest.values()], key=lambda k: k.desired.pci))


def _current_address(request: RecordedRequest, uuids: dict[str, str]) -> str:
    """Return the present address of a GPU, by its UUID; its previous address if the GPU is absent."""
    return next((pci for pci, uuid in uuids.items() if request.uuid and uuid == request.uuid), request.desired.pci)


def _merge(previous: DesiredGpu, desired_gpu: DesiredGpu, gpu: Gpu) -> DesiredGpu:
    """Merge a request into the previous one of the same GPU: what it leaves open stays requested if it still exists."""
    if desired_gpu.passthrough or previous.passthrough:
        return desired_gpu
    virtual = gpu.virtual or GpuVirtualization()
    vgpus = Counter(v.type_id for v in gpu.vgpus)
    bound = {f.pci for f in virtual.functions if f.driver == VFIO}
    still = {
        "mig": previous.mig == gpu.mig.enabled,
        "instances": same_instances(previous.instances or (), gpu.instances),
        "vgpus": Counter(v.type_id for v in previous.vgpus or ()) == vgpus,
        "functions": previous.functions == virtual.enabled,
        "mixed_size": previous.mixed_size == gpu.mixed_size,
        "scheduler": previous.scheduler is not None and meets_scheduler(scheduler_of(gpu), previous.scheduler),
        "vfio_bound": set(previous.vfio_bound or ()) == bound,
    }
    inherited = {
        name: getattr(previous, name)
        for name, present in still.items()
        if present and getattr(desired_gpu, name) is None
    }
    return msgspec.structs.replace(desired_gpu, **inherited)


def _with_parameters(desired_gpu: DesiredGpu, gpu: Gpu) -> DesiredGpu:
    """Return a request with the plugin parameters that it left as they were: a reboot ends these too."""
    left = list(gpu.vgpus)
    vgpus: list[DesiredVgpu] = []
    for request in desired_gpu.vgpus or ():
        found = next((v for v in left if meets(v, request)), None)
        if found is not None:
            left.remove(found)
            request = msgspec.structs.replace(request, parameters=found.parameters or request.parameters)
        vgpus.append(request)
    return msgspec.structs.replace(desired_gpu, vgpus=tuple(vgpus)) if vgpus else desired_gpu


def replay(requests: Iterable[RecordedRequest], inventory: Inventory) -> tuple[Desired, tuple[ResolutionFailure, ...]]:
    """Return the recorded requests of the GPUs that are present, and a failure for each absent GPU. GPUs without a
    record are not named.
    """
    addresses = {gpu.pci for gpu in inventory.gpus}
    uuids = {gpu.pci: gpu.uuid for gpu in inventory.gpus}
    desired_gpus: list[DesiredGpu] = []
    failures: list[ResolutionFailure] = []
    names: set[str] = set()
    notes: list[str] = []
    for recorded in requests:
        each, pci = _possible(recorded, inventory.driver), _current_address(recorded, uuids)
        if pci not in addresses or (each.uuid and uuids[pci] and uuids[pci] != each.uuid):
            text = f"GPU {each.desired.pci} ({each.uuid or 'no UUID'}) is no longer on this node: its request is kept"
            failures.append(ResolutionFailure("NO_SUCH_GPU", text, each.desired.pci, step="aliquot show"))
        else:
            desired_gpus.append(msgspec.structs.replace(_relocate(each.desired, pci), source=NAME, restoring=True))
            names.add(each.name)
            was, now = recorded.desired.scheduler, each.desired.scheduler
            notes += [f"GPU {pci}: this driver cannot have the scheduler {was}: it gets {now}"] if was != now else []
    name = names.pop() if len(names) == 1 else NAME
    return Desired(tuple(desired_gpus), name, tuple(notes)), tuple(failures)


def _possible(request: RecordedRequest, driver: str) -> RecordedRequest:
    """Return a request with a scheduler that this driver can have: it may be newer than the one of that time."""
    scheduler = request.desired.scheduler
    if scheduler is None:
        return request
    desired = msgspec.structs.replace(request.desired, scheduler=without_slice(scheduler, driver))
    return msgspec.structs.replace(request, desired=desired)


def _relocate(desired_gpu: DesiredGpu, pci: str) -> DesiredGpu:
    """Return the request for a GPU that moved to this address. The routing ids of virtual functions are at a fixed
    offset from the GPU's (its SR-IOV capability defines it), so that they moved by the same distance.
    """
    if pci == desired_gpu.pci:
        return desired_gpu

    def relocated_function(function: str) -> str:
        try:
            number = _routing_id(function) - _routing_id(desired_gpu.pci) + _routing_id(pci)
        except ValueError:
            return function  # not an address: the planner reports it
        return f"{number >> 16:04x}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"

    vgpus = desired_gpu.vgpus and tuple(
        msgspec.structs.replace(v, function=relocated_function(v.function)) if v.function else v
        for v in desired_gpu.vgpus
    )
    bound = desired_gpu.vfio_bound and tuple(map(relocated_function, desired_gpu.vfio_bound))
    return msgspec.structs.replace(desired_gpu, pci=pci, vgpus=vgpus, vfio_bound=bound)


def _routing_id(pci: str) -> int:
    """Return a PCI address as one number: domain, bus, device, function."""
    domain, bus, device, function = (int(part, 16) for part in pci.replace(".", ":").split(":"))
    return domain << 16 | bus << 8 | device << 3 | function
