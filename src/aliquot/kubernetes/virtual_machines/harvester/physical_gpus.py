"""One physical GPU with everything that is said of it: on the bus, by the driver, in objects."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.model.pci import PciFunction
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects

VFIO = "vfio-pci"
NVIDIA = "nvidia"
NO_DRIVER = "NoDriver"


class PhysicalGpu(msgspec.Struct, frozen=True):
    """``name`` is that of all its objects. ``vgpus`` are its VGPUDevices by the address of the virtual function, those
    of functions that are off included. ``gpu`` is None while the driver does not show it; ``reason`` and ``error``
    then say why.
    """

    name: str
    node: str
    boot: str
    function: PciFunction
    device: SRIOVGPUDevice | None = None
    mig: MigConfiguration | None = None
    claim: PCIDeviceClaim | None = None
    vgpus: Mapping[str, VGPUDevice] = {}
    inventory: Inventory | None = None
    gpu: Gpu | None = None
    reason: str = ""
    error: str = ""

    @property
    def pci(self) -> str:
        return self.function.address

    @property
    def enabled(self) -> bool:
        """Whether its virtual functions are wanted."""
        return self.device is not None and self.device.spec.enabled

    @property
    def passed_through(self) -> bool:
        """Whether the whole GPU is handed out to virtual machines now."""
        return self.function.driver == VFIO

    @property
    def without_driver(self) -> bool:
        """Whether the kernel alone shows it, since no NVIDIA driver has taken it: it can still be handed out whole."""
        shown = self.inventory.gpus if self.inventory is not None else ()
        return any(_without_driver(gpu) for gpu in shown if gpu.pci == self.pci)

    @property
    def live_vgpus(self) -> Mapping[str, Vgpu]:
        """The vGPUs that exist, by virtual function."""
        return {v.function: v for v in self.gpu.vgpus} if self.gpu is not None else {}

    @property
    def observed_functions(self) -> frozenset[str]:
        """The virtual functions of which the driver tells whether they carry a vGPU."""
        virtual = self.gpu.virtual if self.gpu is not None else None
        return frozenset(f.pci for f in virtual.functions) if virtual is not None else frozenset()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its virtual functions: those that exist in the order of ``virtfn*``, then those that objects remember."""
        present = self.function.virtual
        return (*present, *sorted(a for a in self.vgpus if a not in present))

    @property
    def uses_vendor_vfio(self) -> bool:
        return self.gpu is not None and self.gpu.uses_vendor_vfio

    @property
    def table(self) -> VgpuTable | None:
        return self.inventory.vgpu_table(self.gpu) if self.inventory is not None and self.gpu is not None else None

    @property
    def family(self) -> Family | None:
        """The geometry table, None for a GPU that cannot be cut (or whose table nobody knows)."""
        if self.inventory is None or self.gpu is None or not self.gpu.mig.capable:
            return None
        try:
            return self.inventory.family(self.gpu)
        except KeyError:
            return None


def list_physical_gpus(view: NodeView, objects: Objects) -> tuple[PhysicalGpu, ...]:
    """Every physical NVIDIA GPU of the node, by PCI address."""
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
        vgpus=_vgpus(view, objects, function),
        inventory=view.inventory,
        gpu=gpu,
        reason=reason,
        error=error,
    )


def _find_gpu(view: NodeView, pci: str) -> tuple[Gpu | None, str, str]:
    if view.inventory is None:
        return None, view.reason or NO_DRIVER, view.driver_error or "no GPU driver answers on this node"
    found = next((g for g in view.inventory.gpus if g.pci == pci), None)
    if found is None:
        return None, "NotShown", f"the driver that answers does not show the GPU at {pci} | next: aliquot show"
    if found.lost:
        return None, "GpuLost", f"GPU {pci} has fallen off the bus: what it carried is not known | next: aliquot show"
    if found.virtual is None:
        return None, "NotRead", f"what the kernel knows of the GPU at {pci} could not be read | next: aliquot show"
    if _without_driver(found):
        why = f"NVIDIA's driver has not taken the GPU at {pci} (its driver: {found.virtual.driver or 'none'})"
        return None, view.reason or NO_DRIVER, view.driver_error or why
    return found, "", ""


def _without_driver(gpu: Gpu) -> bool:
    return not gpu.passthrough and gpu.virtual is not None and gpu.virtual.driver not in (NVIDIA, VFIO)


def _vgpus(view: NodeView, objects: Objects, function: PciFunction) -> dict[str, VGPUDevice]:
    """An object counts under the name that its function's address gives it: one that tells another is nobody's."""
    mine = [v for v in objects.vgpus.values() if v.name == object_name(view.node, v.spec.address)]
    present = set(function.virtual)
    return {v.spec.address: v for v in mine if v.spec.address in present or v.spec.parent == function.address}
