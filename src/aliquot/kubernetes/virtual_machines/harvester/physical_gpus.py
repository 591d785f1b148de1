"""A physical GPU with its PCI function, its state in the driver, and its objects."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.reasons import NO_DRIVER, ObjectReason
from aliquot.kubernetes.virtual_machines.harvester.vgpu_slots import slots, vgpus_by_address

VFIO = "vfio-pci"
NVIDIA = "nvidia"


class PhysicalGpu(msgspec.Struct, frozen=True):
    """A physical GPU."""

    name: str
    """The name of all its objects."""
    node: str
    boot: str
    function: PciFunction
    device: SRIOVGPUDevice | None = None
    mig: MigConfiguration | None = None
    claim: PCIDeviceClaim | None = None
    vgpus: Mapping[str, VGPUDevice] = {}
    """Its VGPUDevices by the address of the virtual function or slot, including disabled functions."""
    inventory: Inventory | None = None
    gpu: Gpu | None = None
    """None while the driver does not show the GPU."""
    reason: ObjectReason = ""
    """Why ``gpu`` is None."""
    error: str = ""
    """The sentence for ``reason``."""

    @property
    def pci(self) -> str:
        return self.function.address

    @property
    def enabled(self) -> bool:
        """True if its virtual functions are requested."""
        return self.device is not None and self.device.spec.enabled

    @property
    def passed_through(self) -> bool:
        """True if the whole GPU is passed through now."""
        return self.function.driver == VFIO

    @property
    def without_driver(self) -> bool:
        """True if only the kernel shows it, because no NVIDIA driver is bound to it. It can still be passed through."""
        shown = self.inventory.gpus if self.inventory is not None else ()
        return any(_without_driver(gpu) for gpu in shown if gpu.pci == self.pci)

    @property
    def live_vgpus(self) -> Mapping[str, Vgpu]:
        """The existing vGPUs, by virtual function or slot."""
        return vgpus_by_address(self.function, self.gpu, self.vgpus) if self.gpu is not None else {}

    @property
    def slots(self) -> tuple[str, ...]:
        """The addresses of its slots, if its vGPUs are mdevs of itself; otherwise empty."""
        return slots(self.function, self.gpu)

    @property
    def present(self) -> tuple[str, ...]:
        """The addresses that can carry a vGPU now: its virtual functions, or its slots while it is shared."""
        if not self.slots:
            return self.function.virtual
        return self.slots if self.enabled or (self.gpu is not None and self.gpu.vgpus) else ()

    @property
    def observed_functions(self) -> frozenset[str]:
        """The virtual functions and slots for which the driver reports whether they carry a vGPU."""
        virtual = self.gpu.virtual if self.gpu is not None else None
        if self.slots:
            return frozenset(self.slots if virtual is not None and virtual.framework == "mdev" else ())
        return frozenset(f.pci for f in virtual.functions) if virtual is not None else frozenset()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its virtual functions: the existing ones in the order of ``virtfn*``, then those that only objects name."""
        present = self.present
        return (*present, *sorted(a for a in self.vgpus if a not in present))

    @property
    def uses_vendor_vfio(self) -> bool:
        return self.gpu is not None and self.gpu.uses_vendor_vfio

    @property
    def table(self) -> VgpuTable | None:
        return self.inventory.vgpu_table(self.gpu) if self.inventory is not None and self.gpu is not None else None

    @property
    def family(self) -> Family | None:
        """The geometry table; None for a GPU without MIG or with an unknown table."""
        if self.inventory is None or self.gpu is None or not self.gpu.mig.capable:
            return None
        try:
            return self.inventory.family(self.gpu)
        except KeyError:
            return None


def list_physical_gpus(view: NodeView, objects: Objects) -> tuple[PhysicalGpu, ...]:
    """Return every physical NVIDIA GPU of the node, by PCI address."""
    found = sorted((f for f in view.functions if f.gpu and not f.physfn), key=lambda f: f.address)
    return tuple(_physical_gpu(view, objects, function) for function in found)


def _physical_gpu(view: NodeView, objects: Objects, function: PciFunction) -> PhysicalGpu:
    name = object_name(view.node, function.address)
    gpu, reason, error = _find_gpu(view, function.address)
    claim = objects.claims.get(name)
    return PhysicalGpu(
        name=name,
        node=view.node,
        boot=view.boot,
        function=function,
        device=objects.gpus.get(name),
        mig=objects.migs.get(name),
        claim=claim if claim is not None and claim.spec.address == function.address else None,
        vgpus=vgpu_objects(view.node, objects, function),
        inventory=view.inventory,
        gpu=gpu,
        reason=reason,
        error=error,
    )


def _find_gpu(view: NodeView, pci: str) -> tuple[Gpu | None, ObjectReason, str]:
    if view.inventory is None:
        return None, view.reason or NO_DRIVER, view.driver_error or "no GPU driver answers on this node"
    found = next((g for g in view.inventory.gpus if g.pci == pci), None)
    if found is None:
        return None, "NotShown", _look(f"the driver that answers does not show the GPU at {pci}")
    if found.lost:
        return None, "GpuLost", _look(f"GPU {pci} has fallen off the bus: its previous state is not known")
    if found.virtual is None:
        return None, "NotRead", _look(f"the kernel's data on the GPU at {pci} could not be read")
    if _without_driver(found):
        why = f"NVIDIA's driver is not bound to the GPU at {pci} (its driver: {found.virtual.driver or 'none'})"
        return None, view.reason or NO_DRIVER, view.driver_error or why
    return found, "", ""


def _look(sentence: str) -> str:
    return str(Message(sentence, "aliquot show"))


def _without_driver(gpu: Gpu) -> bool:
    return not gpu.passthrough and gpu.virtual is not None and gpu.virtual.driver not in (NVIDIA, VFIO)


def vgpu_objects(node: str, objects: Objects, function: PciFunction) -> dict[str, VGPUDevice]:
    """Return the VGPUDevices of a GPU by address. An object whose name does not match its address is ignored."""
    mine = [v for v in objects.vgpus.values() if v.name == object_name(node, v.spec.address)]
    present = set(function.virtual)
    return {v.spec.address: v for v in mine if v.spec.address in present or v.spec.parent == function.address}
