"""The inventory as a configuration file: mig-parted's format, which has counts, and ours, which has placements."""

from __future__ import annotations

from collections import Counter

from aliquot.core.config.file import MIG, NATIVE, PASSTHROUGH, VGPU
from aliquot.core.config.formats.native_vgpu import MIXED, PARAMETERS, SCHEDULER
from aliquot.core.config.formats.yaml_writer import natural
from aliquot.core.config.select.selector import packed
from aliquot.core.config.text.vgpu_request import NONE
from aliquot.core.model.ids import packed_pci_id
from aliquot.core.model.inventory import Gpu, GpuInstance, GpuVirtualization, Inventory
from aliquot.core.model.plugin_parameters import as_switches
from aliquot.core.model.vgpu_scheduler import DEFAULT, scheduler_of
from aliquot.errors import BlockedError

Document = dict[str, object]


def export(inventory: Inventory, label: str = "current") -> Document:
    """Build mig-parted's export: GPUs that are alike share an entry, in the order in which they first appear.

    GPU instances without a compute instance are omitted; GPUs that cannot be partitioned count as disabled. GPUs in
    passthrough, which mig-parted cannot see, are omitted too.
    """
    refuse_lost(inventory)
    records: list[tuple[bool, Counter[str], list[Gpu]]] = []
    for gpu in inventory.gpus:
        if gpu.passthrough:
            continue
        enabled, devices = gpu.mig.capable and gpu.mig.enabled, _devices(gpu)
        same = next((r for r in records if (r[0], r[1]) == (enabled, devices)), None)
        if same is None:
            records.append((enabled, devices, [gpu]))
        else:
            same[2].append(gpu)
    by_type: dict[str, set[int]] = {}
    for gpu in inventory.gpus:
        by_type.setdefault(device_type(gpu), set()).add(gpu.index)
    several = len(records) > 1 or any(gpu.passthrough for gpu in inventory.gpus)
    entries = [_entry(enabled, devices, gpus, by_type, several) for enabled, devices, gpus in records]
    return {"version": "v1", "mig-configs": {label: entries}}


def refuse_lost(inventory: Inventory) -> None:
    """Raise BlockedError if a GPU fell off the bus: its state is unknown, and a file must not invent it."""
    lost = [gpu.pci for gpu in inventory.gpus if gpu.lost]
    if lost:
        raise BlockedError(
            f"GPU {', '.join(lost)} has fallen off the bus: its state is unknown and cannot be exported",
            code="GPU_LOST",
            next_step="reboot the node, then: aliquot show",
        )


def device_type(gpu: Gpu) -> str:
    """Return the PCI id as mig-parted prints it, without the subsystem; for GPUs without one, the platform's text."""
    number = packed(gpu.pci_device)
    return gpu.pci_device if number is None else packed_pci_id(number)


def _devices(gpu: Gpu) -> Counter[str]:
    if not gpu.mig.enabled:
        return Counter()
    return Counter(c.profile for instance in gpu.instances for c in instance.compute_instances)


def _entry(
    enabled: bool, devices: Counter[str], gpus: list[Gpu], by_type: dict[str, set[int]], several: bool
) -> Document:
    types = sorted({device_type(gpu) for gpu in gpus})
    indexes = sorted(gpu.index for gpu in gpus)
    entry: Document = {}
    if len(by_type) > 1 and several:
        entry["device-filter"] = types[0] if len(types) == 1 else types
    entry["devices"] = "all" if set(indexes) == set().union(*(by_type[t] for t in types)) else indexes
    entry["mig-enabled"] = enabled
    entry["mig-devices"] = {name: devices[name] for name in natural(devices)}
    return entry


def export_native(inventory: Inventory, label: str = "current") -> Document:
    """Build our export: each GPU that is shared, or could be partitioned, by PCI address.

    Instances have their placements and compute instances. vGPUs are counted by type, which implies the GPU instances
    behind them. GPUs that are alike to the slice share an entry.
    """
    refuse_lost(inventory)
    entries: list[Document] = []
    for gpu in inventory.gpus:
        share = _share(inventory, gpu)
        if share is None:
            continue
        same = next((e for e in entries if {k: v for k, v in e.items() if k != "gpus"} == share), None)
        if same is None:
            entries.append({"gpus": {"pci": [gpu.pci]}, **share})
        else:
            terms = same["gpus"]
            assert isinstance(terms, dict)
            terms["pci"].append(gpu.pci)
    return {"version": NATIVE, "configs": {label: entries}}


def _share(inventory: Inventory, gpu: Gpu) -> Document | None:
    """Return the share of a GPU, None if it has none and cannot be partitioned either."""
    if gpu.passthrough:
        return {PASSTHROUGH: True}
    virtual = gpu.virtual or GpuVirtualization()
    if gpu.vgpus or (virtual.enabled and not gpu.mig.enabled):
        counts = Counter(v.type for v in gpu.vgpus)
        share: Document = {VGPU: {name: counts[name] for name in natural(counts)} or NONE}
        share |= {MIXED: True} if gpu.mixed_size else {}
        scheduler = scheduler_of(gpu)
        share |= {} if scheduler in ("", DEFAULT) else {SCHEDULER: scheduler}
        return share | _parameters(gpu)
    if not gpu.mig.capable:
        return None
    if not gpu.mig.enabled:
        return {MIG: "disabled"}
    return {MIG: [_instance_entry(inventory, gpu, i) for i in _ordered(gpu)] or {}}


def _parameters(gpu: Gpu) -> Document:
    """Return the plugin parameters, if the vGPUs have the same and a file can name them. Without them the file leaves
    parameters as they are.
    """
    texts = {v.parameters for v in gpu.vgpus}
    switches = as_switches(texts.pop()) if len(texts) == 1 else None
    return {PARAMETERS: switches} if switches else {}


def _ordered(gpu: Gpu) -> list[GpuInstance]:
    return sorted(gpu.instances, key=lambda i: (i.place.start, i.profile_id))


def _instance_entry(inventory: Inventory, gpu: Gpu, instance: GpuInstance) -> object:
    profile = inventory.family(gpu).by_id.get(instance.profile_id)
    name = profile.name if profile else f"id:{instance.profile_id}"
    parts = instance.compute_instances
    if profile and [c.profile_id for c in parts] == [profile.default_compute.id]:
        return f"{name}@{instance.place.start}"
    compute = [f"{c.profile}@{c.place.start}" for c in sorted(parts, key=lambda c: c.place.start)]
    return {"profile": name, "placement": instance.place.start, "compute": compute}
