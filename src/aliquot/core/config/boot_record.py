"""The last wish for each GPU as a document that outlives a reboot, and the way back from it.

A reboot takes virtual functions, vGPUs, GPU instances and passthrough away, and on most families MIG mode too: what was
asked must lie outside, to be asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot.core.model.desired import Desired, Fault, GpuWish
from aliquot.core.model.inventory import Gpu, Inventory, Virtual
from aliquot.core.planner.compute_grouping import same_instances

NAME = "the record"
VFIO = "vfio-pci"


class Kept(msgspec.Struct, frozen=True):
    """The last wish for one GPU. ``uuid`` finds it again where its address changed; ``name`` is the named config."""

    wish: GpuWish
    uuid: str = ""
    name: str = ""


class Record(msgspec.Struct, frozen=True):
    """What is kept of a node: its GPUs' wishes."""

    gpus: tuple[Kept, ...] = ()


def kept(former: Iterable[Kept], desired: Desired, after: Inventory) -> tuple[Kept, ...]:
    """What is to be remembered once a wish was met: the new one for the GPUs that it names, the former for others.
    ``after`` is the node as it is then.
    """
    gpus = {gpu.pci: gpu for gpu in after.gpus}
    uuids = {gpu.pci: gpu.uuid for gpu in after.gpus}
    rest = {_place(k, uuids): k for k in former}
    made = []
    for wish in desired.gpus:
        old = rest.pop(wish.pci, None)
        full = _over(old.wish, wish, gpus[wish.pci]) if old and wish.pci in gpus else wish
        made.append(Kept(full, uuids.get(wish.pci, ""), desired.name))
    return tuple(sorted([*made, *rest.values()], key=lambda k: k.wish.pci))


def _place(kept: Kept, uuids: dict[str, str]) -> str:
    """Where a GPU is now, by its UUID; where it was, if it is not there."""
    return next((pci for pci, uuid in uuids.items() if kept.uuid and uuid == kept.uuid), kept.wish.pci)


def _over(former: GpuWish, wish: GpuWish, gpu: Gpu) -> GpuWish:
    """A wish over the former one of the same GPU: what it leaves open stays asked, as far as it is still there."""
    if wish.passthrough or former.passthrough:
        return wish
    virtual = gpu.virtual or Virtual()
    vgpus = Counter(v.type_id for v in gpu.vgpus)
    bound = {f.pci for f in virtual.functions if f.driver == VFIO}
    still = {
        "mig": former.mig == gpu.mig.enabled,
        "instances": same_instances(former.instances or (), gpu.instances),
        "vgpus": Counter(v.type_id for v in former.vgpus or ()) == vgpus,
        "functions": former.functions == virtual.enabled,
        "mixed": former.mixed == virtual.mixed,
        "bound": set(former.bound or ()) == bound,
    }
    inherited = {name: getattr(former, name) for name, there in still.items() if there and getattr(wish, name) is None}
    return msgspec.structs.replace(wish, **inherited)


def replay(kept: Iterable[Kept], inventory: Inventory) -> tuple[Desired, tuple[Fault, ...]]:
    """The recorded wishes of the GPUs that are there, and a fault for each that is not. No other GPU is named."""
    here = {gpu.pci for gpu in inventory.gpus}
    uuids = {gpu.pci: gpu.uuid for gpu in inventory.gpus}
    wishes: list[GpuWish] = []
    gone: list[Fault] = []
    names: set[str] = set()
    for each in kept:
        pci = _place(each, uuids)
        if pci not in here or (each.uuid and uuids[pci] and uuids[pci] != each.uuid):
            text = f"GPU {each.wish.pci} ({each.uuid or 'no UUID'}) is not on this node any more: its wish waits"
            gone.append(Fault("NO_SUCH_GPU", text, each.wish.pci, next_step="aliquot show"))
        else:
            wishes.append(msgspec.structs.replace(_moved(each.wish, pci), source=NAME, restoring=True))
            names.add(each.name)
    return Desired(tuple(wishes), name=names.pop() if len(names) == 1 else NAME), tuple(gone)


def _moved(wish: GpuWish, pci: str) -> GpuWish:
    """The wish for a GPU that is at this address now. Virtual functions lie at a distance from it that its SR-IOV
    capability tells, in routing ids, so that they moved as far as it did.
    """
    if pci == wish.pci:
        return wish

    def there(function: str) -> str:
        try:
            number = _routing_id(function) - _routing_id(wish.pci) + _routing_id(pci)
        except ValueError:
            return function  # no address: whoever plans it says so
        return f"{number >> 16:04x}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"

    vgpus = wish.vgpus and tuple(
        msgspec.structs.replace(v, function=there(v.function)) if v.function else v for v in wish.vgpus
    )
    bound = wish.bound and tuple(map(there, wish.bound))
    return msgspec.structs.replace(wish, pci=pci, vgpus=vgpus, bound=bound)


def _routing_id(pci: str) -> int:
    """A PCI address as one number: domain, bus, device, function."""
    domain, bus, device, function = (int(part, 16) for part in pci.replace(".", ":").split(":"))
    return domain << 16 | bus << 8 | device << 3 | function
