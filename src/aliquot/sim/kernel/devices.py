"""The PCI functions of a node and their drivers: matching, binding and unbinding, and dynamic ids. Refusals are OSError
with the kernel's errno (drivers/base/bus.c, drivers/pci/pci-driver.c, drivers/vfio).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import NamedTuple

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel import pci, vms
from aliquot.sim.kernel.pci import PciIdentity
from aliquot.sim.node import SimNode
from aliquot.sim.state import DynamicId, FunctionState, GpuState, NeighbourState

NVIDIA = "nvidia"
VFIO = "vfio-pci"
DRIVERS = (NVIDIA, VFIO, "igb", "ixgbe", "mlx5_core", "hpsa", "nvme", "xhci_hcd")
_ID = re.compile(r"([0-9a-fA-F]{1,4})[ :]([0-9a-fA-F]{1,4})(\s.*)?")


def refuse(code: int) -> OSError:
    """Return the kernel's refusal."""
    import os

    return OSError(code, os.strerror(code))


class SimPciFunction(NamedTuple):
    """A function that a driver can be bound to: a GPU, its virtual function, or another vendor's beside it."""

    gpu: SimGpu
    address: str
    state: GpuState | FunctionState | NeighbourState

    @property
    def native(self) -> str:
        """The driver that supports this kind of device natively."""
        if isinstance(self.state, NeighbourState):
            return self.state.native
        return NVIDIA if self.physical or self.gpu.state.host else ""

    @property
    def physical(self) -> bool:
        return self.state is self.gpu.state

    @property
    def virtual(self) -> bool:
        return isinstance(self.state, FunctionState)

    def identity(self) -> PciIdentity:
        if isinstance(self.state, FunctionState):
            return pci.virtual(self.gpu, self.state)
        if isinstance(self.state, NeighbourState):
            return pci.neighbour(self.gpu.state, self.state)
        return pci.physical(self.gpu)

    def driver(self, now: float) -> str:
        """Return the bound driver; a virtual function that has just appeared has none yet."""
        if isinstance(self.state, FunctionState) and now < self.state.ready:
            return ""
        return self.state.driver


def of_gpu(gpu: SimGpu, now: float) -> Iterator[SimPciFunction]:
    """Return the GPU, the devices beside it, and its virtual functions that have appeared."""
    yield SimPciFunction(gpu, gpu.state.pci, gpu.state)
    for each in pci.neighbours(gpu.state):
        yield SimPciFunction(gpu, pci.neighbour_address(gpu.state, each), each)
    for function in gpu.state.functions:
        if now >= function.visible:
            yield SimPciFunction(gpu, pci.function_address(gpu.state, function.number), function)


def lies_on(gpu: SimGpu, address: str, now: float) -> bool:
    """Return whether a function with that address is behind the root port of a GPU."""
    state = gpu.state
    if address == state.pci or any(address == pci.neighbour_address(state, each) for each in pci.neighbours(state)):
        return True
    number = pci.function_number(state, address)
    return number is not None and number < len(state.functions) and now >= state.functions[number].visible


def all_functions(node: SimNode) -> Iterator[SimPciFunction]:
    now = node.environment.now()
    for gpu in node.gpus:
        yield from of_gpu(gpu, now)


def find(node: SimNode, address: str) -> SimPciFunction:
    """Return the function at an address. Raises ENODEV."""
    for device in all_functions(node):
        if device.address == address.strip():
            return device
    raise refuse(errno.ENODEV)


def group(node: SimNode, device: SimPciFunction) -> int:
    if isinstance(device.state, FunctionState):
        return device.state.group
    if isinstance(device.state, NeighbourState) and device.state.group >= 0:
        return device.state.group
    return pci.gpu_group(node.state, device.gpu.state)


def _dynamic(node: SimNode, device: SimPciFunction) -> list[str]:
    """Return the drivers that were given this device's id. They were loaded later and are tried first."""
    identity = device.identity()
    own = f"{identity.vendor} {identity.device}"
    return [d.driver for d in node.state.dynamic_ids if d.id == own]


def _matching(node: SimNode, device: SimPciFunction) -> list[str]:
    """Return the drivers that match a device, in the order in which they are tried."""
    if device.state.override:
        return [d for d in DRIVERS if d == device.state.override]
    return [*_dynamic(node, device), *([device.native] if device.native else [])]


def _probe(node: SimNode, device: SimPciFunction, driver: str) -> None:
    """Bind the driver to the device if it accepts it. Raises OSError."""
    if driver == VFIO:
        vendor_vfio = device.virtual and device.gpu.state.host == "vfio"
        if not node.state.iommu or vendor_vfio:
            raise refuse(errno.EINVAL)
    if driver != VFIO and driver != device.native:
        raise refuse(errno.ENODEV)
    device.state.driver = driver


def attach(node: SimNode, device: SimPciFunction) -> None:
    """Bind the first matching driver that accepts the device, if any. Raises the last refusal."""
    refusal: OSError | None = None
    for driver in _matching(node, device):
        try:
            _probe(node, device, driver)
        except OSError as error:
            refusal = error
        else:
            return
    if refusal is not None:
        raise refusal


def bind(node: SimNode, driver: str, text: str) -> None:
    """Write ``drivers/NAME/bind``."""
    device = find(node, text)
    if driver not in _matching(node, device):
        raise refuse(errno.ENODEV)
    if device.state.driver:
        raise refuse(errno.EBUSY)
    _probe(node, device, driver)


def unbind(node: SimNode, driver: str, text: str) -> None:
    """Write ``drivers/NAME/unbind``. NVIDIA's driver releases a device only without clients, and loses the device's
    state.
    """
    device = find(node, text)
    if not device.state.driver or device.state.driver != driver:
        raise refuse(errno.ENODEV)
    gpu = device.gpu.state
    own = [device.address, *(v.uuid for v in gpu.vgpus if v.function == device.address)]
    if any(vms.open_on(node, name) for name in own):
        raise refuse(errno.EBUSY)
    if device.physical and driver == NVIDIA:
        if in_use(node, device.gpu) or gpu.functions:
            raise refuse(errno.EBUSY)
        device.gpu.restart()
        gpu.locked = False
    elif device.virtual:
        gpu.vgpus = [v for v in gpu.vgpus if v.function != device.address]
    device.state.driver = ""


def probe_again(node: SimNode, text: str) -> None:
    """Write ``drivers_probe``: bind an unbound device to its driver."""
    device = find(node, text)
    if device.state.driver:
        return
    try:
        attach(node, device)
    except OSError as error:
        raise refuse(errno.EINVAL) from error


def set_override(device: SimPciFunction, text: str) -> None:
    """Write ``driver_override``; an empty line clears it."""
    if len(text) >= 4095:
        raise refuse(errno.EINVAL)
    device.state.override = text.strip("\n")


def _id(text: str) -> str:
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise refuse(errno.EINVAL)
    return f"{int(found.group(1), 16):04x} {int(found.group(2), 16):04x}"


def new_id(node: SimNode, driver: str, text: str) -> None:
    """Write ``new_id``: every unbound device with that id is bound now, and every one that appears later."""
    wanted = DynamicId(driver, _id(text))
    if wanted in node.state.dynamic_ids:
        raise refuse(errno.EEXIST)
    node.state.dynamic_ids = [*node.state.dynamic_ids, wanted]
    for device in all_functions(node):
        if not device.state.driver and driver in _matching(node, device):
            try:
                _probe(node, device, driver)
            except OSError:
                continue  # the kernel only logs refusals when it probes many devices


def remove_id(node: SimNode, driver: str, text: str) -> None:
    unwanted = DynamicId(driver, _id(text))
    if unwanted not in node.state.dynamic_ids:
        raise refuse(errno.ENODEV)
    node.state.dynamic_ids = [d for d in node.state.dynamic_ids if d != unwanted]


def in_use(node: SimNode, gpu: SimGpu) -> bool:
    """Return whether the driver has clients on a GPU: any open NVML session, a process, or a VM on a vGPU."""
    own = {v.uuid for v in gpu.state.vgpus} | {pci.function_address(gpu.state, f.number) for f in gpu.state.functions}
    held = any(own.intersection(vm.devices) for vm in node.state.vms)
    return bool(node.sessions) or bool(gpu.state.processes) or held
