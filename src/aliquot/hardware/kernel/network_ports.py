"""Network ports that can have virtual functions: what uses them, and the change of their number."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aliquot.core.model.peripherals import NetworkFunction, NetworkPort
from aliquot.errors import HardwareError
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.function_users import HostNetwork, all_uses, interfaces, network_uses, read_network
from aliquot.hardware.kernel.sysfs import MalformedError, link_target, list_names
from aliquot.hardware.kernel_files import KernelFiles

Owned = Mapping[str, tuple[str, ...]]
"""Network interfaces by the address of their function."""


def scan_ports(files: KernelFiles, node_addresses: Collection[str] = ()) -> tuple[NetworkPort, ...]:
    """Return the ports in the order of their interfaces' names.

    ``node_addresses`` are the IP addresses by which the cluster reaches this node. Raises HardwareError if a port
    cannot be read: it must not be reported as gone.
    """
    try:
        owned = interfaces(files)
        totals = {address: sriov.total(files, address) for address in owned}
        network = read_network(files, node_addresses) if any(totals.values()) else HostNetwork({}, {})
        found = [
            _port(files, name, address, totals[address], owned, network)
            for address, names in owned.items()
            for name in names
            if totals[address]
        ]
    except (OSError, MalformedError) as failure:
        path = getattr(failure, "filename", None) or bus.DEVICES
        reason = getattr(failure, "strerror", None) or str(failure)
        raise HardwareError(f"the network ports cannot be read: {reason}", next_step=f"ls -l {path}") from failure
    return tuple(sorted(found, key=lambda port: port.interface))


def set_functions(files: KernelFiles, address: str, count: int) -> None:
    """Set the number of a port's virtual functions. The kernel changes it only from or to 0.

    Raises HardwareError with the kernel's reason. The earlier number is then set again if that is possible.
    """
    path = bus.attribute(address, "sriov_numvfs")
    before = sriov.count(files, address)
    try:
        if before and count:
            files.write(path, "0")
        files.write(path, str(count))
    except OSError as failure:
        text = f"the driver of {address} refuses {count} virtual functions: {failure.strerror}"
        if sriov.count(files, address) != before:
            text += _restore(files, path, before)
        raise HardwareError(text, next_step=f"cat {path}; dmesg | tail") from failure


def _restore(files: KernelFiles, path: str, count: int) -> str:
    try:
        files.write(path, str(count))
    except OSError as failure:
        return f"; the earlier {count} could not be set again: {failure.strerror}"
    return f"; the earlier {count} are set again"


def _port(
    files: KernelFiles, interface: str, address: str, total: int, owned: Owned, network: HostNetwork
) -> NetworkPort:
    links = sorted(name for name in list_names(files, f"{bus.DEVICES}/{address}") if name.startswith("virtfn"))
    targets = filter(None, (link_target(files, bus.attribute(address, link)) for link in links))
    # A change removes the functions with their addresses. The port keeps its own: only what the node needs counts.
    uses = all_uses(network)
    functions = tuple(NetworkFunction(each, _function_user(files, each, owned.get(each, ()), uses)) for each in targets)
    traffic = ", ".join(network_uses(files, (interface,), network.needed))
    return NetworkPort(interface, address, total, functions, traffic)


def _function_user(files: KernelFiles, address: str, own: Collection[str], uses: Mapping[str, str]) -> str:
    """Return what uses a virtual function. One whose interface is not here was given to a pod, or to a VM."""
    driver = bus.driver(files, address)
    if driver and not own:
        return f"driver {driver}, and no interface of the host"
    return ", ".join(network_uses(files, own, uses))
