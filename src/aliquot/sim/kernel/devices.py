"""The PCI functions of a node and their drivers: who matches what, binding and unbinding, ids that drivers are given.

Refusals are OSError with the kernel's errno (drivers/base/bus.c, drivers/pci/pci-driver.c, drivers/vfio).
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
DRIVERS = (NVIDIA, VFIO, "igb")
_ID = re.compile(r"([0-9a-fA-F]{1,4})[ :]([0-9a-fA-F]{1,4})(\s.*)?")


def refuse(code: int) -> OSError:
    """The kernel's refusal."""
    import os

    return OSError(code, os.strerror(code))


class SimPciFunction(NamedTuple):
    """A function that a driver can be bound to: a GPU, its virtual function, or the network card beside it."""

    gpu: SimGpu
    address: str
    state: GpuState | FunctionState | NeighbourState

    @property
    def native(self) -> str:
        """The driver that knows this kind of device by itself."""
        if isinstance(self.state, NeighbourState):
            return "igb"
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
        return pci.physical(self.gpu) if self.physical else pci.neighbour(self.gpu.state)

    def driver(self, now: float) -> str:
        """The bound driver; a virtual function that has just appeared has none yet."""
        if isinstance(self.state, FunctionState) and now < self.state.ready:
            return ""
        return self.state.driver


def of_gpu(gpu: SimGpu, now: float) -> Iterator[SimPciFunction]:
    """The GPU, what lies beside it, and its virtual functions that have appeared."""
    yield SimPciFunction(gpu, gpu.state.pci, gpu.state)
    if gpu.state.neighbour is not None:
        yield SimPciFunction(gpu, pci.neighbour_address(gpu.state), gpu.state.neighbour)
    for function in gpu.state.functions:
        if now >= function.visible:
            yield SimPciFunction(gpu, pci.function_address(gpu.state, function.number), function)


def lies_on(gpu: SimGpu, address: str, now: float) -> bool:
    """Whether there is a function of that address on the board of a GPU."""
    state = gpu.state
    if address == state.pci or (state.neighbour is not None and address == pci.neighbour_address(state)):
        return True
    number = pci.function_number(state, address)
    return number is not None and number < len(state.functions) and now >= state.functions[number].visible


def all_functions(node: SimNode) -> Iterator[SimPciFunction]:
    now = node.environment.now()
    for gpu in node.gpus:
        yield from of_gpu(gpu, now)


def find(node: SimNode, address: str) -> SimPciFunction:
    """Raises ENODEV."""
    for device in all_functions(node):
        if device.address == address.strip():
            return device
    raise refuse(errno.ENODEV)


def group(node: SimNode, device: SimPciFunction) -> int:
    if isinstance(device.state, FunctionState):
        return device.state.group
    return pci.gpu_group(node.state, device.gpu.state)


def _dynamic(node: SimNode, device: SimPciFunction) -> list[str]:
    """Drivers that were given this device's id; they were loaded later and are asked first."""
    identity = device.identity()
    own = f"{identity.vendor} {identity.device}"
    return [d.driver for d in node.state.dynamic_ids if d.id == own]


def _matching(node: SimNode, device: SimPciFunction) -> list[str]:
    """The drivers that match a device, in the order in which they are asked."""
    if device.state.override:
        return [d for d in DRIVERS if d == device.state.override]
    return [*_dynamic(node, device), *([device.native] if device.native else [])]


def _probe(node: SimNode, device: SimPciFunction, driver: str) -> None:
    """The driver takes the device, or refuses. Raises OSError."""
    if driver == VFIO:
        vendor_vfio = device.virtual and device.gpu.state.host == "vfio"
        if not node.state.iommu or vendor_vfio:
            raise refuse(errno.EINVAL)
    if driver != VFIO and driver != device.native:
        raise refuse(errno.ENODEV)
    device.state.driver = driver


def attach(node: SimNode, device: SimPciFunction) -> None:
    """Bind the first matching driver that takes the device, if any does. Raises what the last one refused with."""
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
    """``drivers/NAME/bind``."""
    device = find(node, text)
    if driver not in _matching(node, device):
        raise refuse(errno.ENODEV)
    if device.state.driver:
        raise refuse(errno.EBUSY)
    _probe(node, device, driver)


def unbind(node: SimNode, driver: str, text: str) -> None:
    """``drivers/NAME/unbind``. NVIDIA's driver gives a device up only without clients, and forgets what it held."""
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
    """``drivers_probe``: an unbound device finds its driver."""
    device = find(node, text)
    if device.state.driver:
        return
    try:
        attach(node, device)
    except OSError as error:
        raise refuse(errno.EINVAL) from error


def set_override(device: SimPciFunction, text: str) -> None:
    """``driver_override``; an empty line clears it."""
    if len(text) >= 4095:
        raise refuse(errno.EINVAL)
    device.state.override = text.strip("\n")


def _id(text: str) -> str:
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise refuse(errno.EINVAL)
    return f"{int(found.group(1), 16):04x} {int(found.group(2), 16):04x}"


def new_id(node: SimNode, driver: str, text: str) -> None:
    """``new_id``: every unbound device of that id binds now, and every one that appears later."""
    wanted = DynamicId(driver, _id(text))
    if wanted in node.state.dynamic_ids:
        raise refuse(errno.EEXIST)
    node.state.dynamic_ids = [*node.state.dynamic_ids, wanted]
    for device in all_functions(node):
        if not device.state.driver and driver in _matching(node, device):
            try:
                _probe(node, device, driver)
            except OSError:
                continue  # the kernel only logs what a probe of many refuses


def remove_id(node: SimNode, driver: str, text: str) -> None:
    unwanted = DynamicId(driver, _id(text))
    if unwanted not in node.state.dynamic_ids:
        raise refuse(errno.ENODEV)
    node.state.dynamic_ids = [d for d in node.state.dynamic_ids if d != unwanted]


def in_use(node: SimNode, gpu: SimGpu) -> bool:
    """Whether the driver has clients on a GPU: any open NVML session, a process, a virtual machine on a vGPU."""
    own = {v.uuid for v in gpu.state.vgpus} | {pci.function_address(gpu.state, f.number) for f in gpu.state.functions}
    held = any(own.intersection(vm.devices) for vm in node.state.vms)
    return bool(node.sessions) or bool(gpu.state.processes) or held
