"""The directories of PCI functions: attributes, links, and the driver's files."""

from __future__ import annotations

import errno
from collections.abc import Callable

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.topology import PER_PROCESSOR, numa_node
from aliquot.sim.kernel import devices, functions, host_devices, mdevs, pci, rules
from aliquot.sim.kernel.devices import SimPciFunction, refuse
from aliquot.sim.kernel.pci import PciIdentity
from aliquot.sim.kernel.tree_entries import Dir, Entry, File, WritableFile, folder, text, up
from aliquot.sim.node import SimNode
from aliquot.sim.state import FunctionState, GpuState, NeighbourState

_DEPTH = 4
"""The depth of a function's directory below /sys: devices/pciDDDD:BB/PORT/ADDRESS."""


def _identity(identity: PciIdentity, driver: Callable[[], str]) -> dict[str, Entry]:
    """Return the entries that every function has."""
    return {
        "vendor": text(f"0x{identity.vendor}\n"),
        "device": text(f"0x{identity.device}\n"),
        "class": text(f"0x{identity.klass}\n"),
        "subsystem_vendor": text(f"0x{identity.sub_vendor}\n"),
        "subsystem_device": text(f"0x{identity.sub_device}\n"),
        "revision": text(f"0x{identity.revision}\n"),
        "modalias": text(identity.modalias + "\n"),
        "config": File(lambda: identity.config, binary=True),
        "uevent": File(lambda: identity.uevent(driver())),
        "enable": text("1\n"),
    }


def function(node: SimNode, device: SimPciFunction) -> Dir:
    """Return the directory of a GPU, of its virtual function, or of a device beside it."""
    return Dir(lambda: _function(node, device))


def _function(node: SimNode, device: SimPciFunction) -> dict[str, Entry]:
    now = node.environment.now()
    gpu, number = device.gpu, device.gpu.state.index
    driver = device.driver(now)
    numa = numa_node(gpu)
    first = numa * 8 * PER_PROCESSOR

    def override(value: str) -> None:
        devices.set_override(device, value)

    entries = _identity(device.identity(), lambda: driver) | {
        "numa_node": text(f"{numa}\n"),
        "local_cpulist": text(f"{first}-{first + 8 * PER_PROCESSOR - 1}\n"),
        "resource": text("0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13),
        "reset_method": text("flr bus\n"),
        "driver_override": File(lambda: f"{device.state.override or '(null)'}\n", WritableFile(number, override)),
        "subsystem": up(_DEPTH, "bus/pci"),
    }
    if driver:
        entries["driver"] = up(_DEPTH, f"bus/pci/drivers/{driver}")
    if node.state.iommu:
        entries["iommu_group"] = up(_DEPTH, f"kernel/iommu_groups/{devices.group(node, device)}")
        if driver == devices.VFIO or _vendor_vfio(device, driver):
            name = vfio_name(node, device)
            entries["vfio-dev"] = folder({name: folder({"uevent": text(f"DEVNAME=vfio/devices/{name}\n")})})
    if device.physical:
        entries |= _physical(node, gpu, now)
    elif isinstance(device.state, FunctionState):
        entries |= _virtual(node, gpu, device.state, device.address, driver)
    elif isinstance(device.state, NeighbourState):
        entries |= host_devices.entries(node, gpu.state, device.state)
    return entries


def vfio_name(node: SimNode, device: SimPciFunction) -> str:
    """Return the name in ``vfio-dev`` and /dev/vfio/devices: one number per device."""
    beside = not device.physical and not device.virtual
    return f"vfio{devices.group(node, device) + (500 if beside else 0)}"


def _vendor_vfio(device: SimPciFunction, driver: str) -> bool:
    return device.virtual and driver == devices.NVIDIA and rules.vgpu_framework(device.gpu.state) == "vendor-vfio"


def has_handle(node: SimNode, device: SimPciFunction) -> bool:
    """Return whether this function has a VFIO handle to open."""
    driver = device.driver(node.environment.now())
    return node.state.iommu and (driver == devices.VFIO or _vendor_vfio(device, driver))


def _physical(node: SimNode, gpu: SimGpu, now: float) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    total = pci.total_functions(gpu.state)
    if total:
        entries = _sriov(gpu, total)
        for each in gpu.state.functions:
            if now >= each.visible:
                entries[f"virtfn{each.number}"] = up(1, pci.function_address(gpu.state, each.number))
    if rules.vgpu_framework(gpu.state) == "mdev":
        entries |= mdevs.parent(node, gpu, gpu.state.pci)
    return entries


def _sriov(gpu: SimGpu, total: int) -> dict[str, Entry]:
    state, number = gpu.state, gpu.state.index
    return {
        "sriov_totalvfs": text(f"{total}\n"),
        "sriov_numvfs": File(
            lambda: f"{len(state.functions)}\n", WritableFile(number, lambda value: functions.set_count(gpu, value))
        ),
        "sriov_offset": text(f"{pci.offset(state)}\n"),
        "sriov_stride": text("1\n"),
        "sriov_vf_device": text(f"{pci.physical(gpu).device}\n"),
        "sriov_vf_total_msix": text("0\n"),
        "sriov_drivers_autoprobe": File(
            lambda: f"{int(state.autoprobe)}\n", WritableFile(number, lambda value: _autoprobe(state, value))
        ),
    }


def _autoprobe(gpu: GpuState, value: str) -> None:
    word = value.strip().lower()
    if word not in ("0", "1", "y", "n"):
        raise refuse(errno.EINVAL)
    gpu.autoprobe = word in ("1", "y")


def _virtual(node: SimNode, gpu: SimGpu, each: FunctionState, address: str, driver: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {"physfn": up(1, gpu.state.pci)}
    framework = rules.vgpu_framework(gpu.state)
    if driver == devices.NVIDIA and framework == "sriov-mdev":
        entries |= mdevs.parent(node, gpu, address)
    elif driver == devices.NVIDIA and framework == "vendor-vfio":
        entries["nvidia"] = mdevs.vendor(node, gpu, each, address)
    return entries


def port(node: SimNode, gpu: SimGpu) -> Dir:
    """Return the root port above a GPU, with everything below it."""

    def make() -> dict[str, Entry]:
        found = _identity(pci.port(gpu.state), lambda: "pcieport")
        found["numa_node"] = text(f"{numa_node(gpu)}\n")
        found["subsystem"] = up(_DEPTH - 1, "bus/pci")
        found["driver"] = up(_DEPTH - 1, "bus/pci/drivers/pcieport")
        if node.state.iommu:
            found["iommu_group"] = up(_DEPTH - 1, f"kernel/iommu_groups/{gpu.state.index}")
        for device in devices.of_gpu(gpu, node.environment.now()):
            found[device.address] = function(node, device)
        return found

    return Dir(make)


def drivers(node: SimNode) -> Dir:
    """Return ``/sys/bus/pci/drivers``."""
    return Dir(lambda: {name: _driver(node, name) for name in (*devices.DRIVERS, "pcieport")})


def _driver(node: SimNode, name: str) -> Dir:
    def make() -> dict[str, Entry]:
        now = node.environment.now()
        found: dict[str, Entry] = {"uevent": File(write=WritableFile(-1, lambda _value: None))}
        if name == "pcieport":
            for gpu in node.gpus:
                found[pci.port_address(gpu.state)] = up(4, pci.port_folder(gpu.state))
            return found
        handlers = {
            "bind": devices.bind,
            "unbind": devices.unbind,
            "new_id": devices.new_id,
            "remove_id": devices.remove_id,
        }
        for file, handler in handlers.items():
            found[file] = File(write=WritableFile(-1, lambda value, handler=handler: handler(node, name, value)))  # type: ignore[misc]
        for device in devices.all_functions(node):
            if device.driver(now) == name:
                found[device.address] = up(4, pci.device_folder(device.gpu.state, device.address))
        return found

    return Dir(make)
