"""Uses of a PCI function by the host itself: file systems, swap, and its network.

Passing such a function through would take the host's own disk or network away. The mounts and routes are those of the
host's first process: this process may be in a container.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel.sysfs import link_target, list_names, read_number, read_optional
from aliquot.hardware.kernel.vfio_holders import hidden_processes
from aliquot.hardware.kernel_files import KernelFiles

_CLASS = "/sys/class"
_BTRFS = "/sys/fs/btrfs"
_INIT = "/proc/1"
_ADDRESS = re.compile(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/)")
_USER_SPACE = ("uio_pci_generic", "igb_uio")
"""Drivers through which programs such as SPDK (Longhorn's V2 data engine) use a disk or a card themselves."""
_NO_INTERFACE = ("", bus.VFIO, "pci-stub", *_USER_SPACE)
"""Drivers of a network card that make no network interface."""
_CARD = 0x0200
_SUBSYSTEM = re.compile(r"/nvme-subsystem/([^/]+)/")
_OCTAL = re.compile(r"\\([0-7]{3})")


def host_uses(files: KernelFiles, pci: str, node_addresses: Collection[str] = ()) -> tuple[str, ...]:
    """Return what on the host needs a function, as phrases; none if it may be passed through.

    ``node_addresses`` are the IP addresses by which the cluster reaches this node. Raises OSError. If the mounts cannot
    be determined, a phrase says so: the function then counts as used.
    """
    count = len([name for name in list_names(files, f"{bus.DEVICES}/{pci}") if name.startswith("virtfn")])
    functions = (f"it has {count} virtual functions",) if count else ()
    driver = bus.driver(files, pci)
    programs = (f"{driver} gives it to a program of the host",) if driver in _USER_SPACE else ()
    own = interfaces(files).get(pci, ())
    if not own and driver not in _NO_INTERFACE and (read_number(files, bus.attribute(pci, "class")) or 0) >> 8 == _CARD:
        programs = (f"{driver} drives it, and no interface of the host shows: a pod may have it",)
    network = _own_network_uses(files, own, node_addresses)
    return (*functions, *programs, *_block_uses(files, _blocks(files, pci)), *network)


def usb_uses(files: KernelFiles, port: str, node_addresses: Collection[str] = ()) -> tuple[str, ...]:
    """Return what on the host needs a USB device, or what is plugged into it, as phrases; none if a VM may have it.

    ``port`` is the kernel's name of the device: ``1-4.2``. Raises OSError.
    """
    network = _own_network_uses(files, _below(files, "net", port), node_addresses)
    return (*_block_uses(files, _below(files, "block", port)), *network)


def interfaces(files: KernelFiles) -> Mapping[str, tuple[str, ...]]:
    """Return the host's network interfaces by the address of their function."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(list_names(files, f"{_CLASS}/net")):
        for address in _owners(files, "net", name):
            found[address] = (*found.get(address, ()), name)
    return found


def master(files: KernelFiles, interface: str) -> str:
    """Return the bond or bridge that an interface is part of, or ""."""
    return link_target(files, f"{_CLASS}/net/{interface}/master")


def _owners(files: KernelFiles, kind: str, name: str) -> tuple[str, ...]:
    """Return the function below whose directory a class device is; none for a virtual one."""
    return tuple(_ADDRESS.findall(f"{_optional_link(files, f'{_CLASS}/{kind}/{name}')}/")[-1:])


def _below(files: KernelFiles, kind: str, port: str) -> frozenset[str]:
    """Return the class devices whose path leads over a USB device."""
    names = list_names(files, f"{_CLASS}/{kind}")
    return frozenset(name for name in names if f"/{port}/" in _optional_link(files, f"{_CLASS}/{kind}/{name}"))


def _optional_link(files: KernelFiles, path: str) -> str:
    """Return a link's target; "" if it is gone, or not a link (bonding_masters)."""
    try:
        return files.link(path)
    except OSError:
        return ""


# -- storage


def _block_uses(files: KernelFiles, blocks: frozenset[str]) -> tuple[str, ...]:
    """Return what uses disks. An exclusive use without a name (ZFS, a program) is given where no other is known."""
    return (tuple(_named_block_uses(files, blocks)) or tuple(_exclusive_uses(files, blocks))) if blocks else ()


def _exclusive_uses(files: KernelFiles, blocks: frozenset[str]) -> Iterator[str]:
    for block in sorted(blocks):
        try:
            if files.claimed(f"/dev/{block.replace('!', '/')}"):
                yield f"{block} is open exclusively, as for ZFS, LVM or a program of the host"
        except OSError as failure:
            yield f"whether {block} is in use is not known: {failure.strerror}"


def _named_block_uses(files: KernelFiles, blocks: frozenset[str]) -> Iterator[str]:
    if hidden := hidden_processes(files):
        yield f"the file systems on {', '.join(sorted(blocks))} are not known: {hidden}"
        return
    for block in sorted(blocks):
        users = list_names(files, f"{_CLASS}/block/{block}/holders")
        yield from (f"{user} uses {block}" for user in sorted(users))
    numbers = {read_optional(files, f"{_CLASS}/block/{block}/dev") or block: block for block in sorted(blocks)}
    for device, number, point in _mounts(files):
        if device in blocks or number in numbers:
            yield f"{device if device in blocks else numbers[number]} is mounted on {point}"
    for name in sorted(list_names(files, _BTRFS)):
        members = sorted(blocks & {*list_names(files, f"{_BTRFS}/{name}/devices")})
        yield from (f"{block} is part of the mounted btrfs file system {name}" for block in members)
    for row in (read_optional(files, "/proc/swaps") or "").splitlines()[1:]:
        if (device := row.split(" ")[0].split("\t")[0].removeprefix("/dev/")) in blocks:
            yield f"{device} is swap space"


def _blocks(files: KernelFiles, pci: str) -> frozenset[str]:
    """Return the block devices on a function, with their partitions."""
    controllers = {name for name in list_names(files, f"{_CLASS}/nvme") if pci in _owners(files, "nvme", name)}
    found = set()
    for name in list_names(files, f"{_CLASS}/block"):
        if pci in _owners(files, "block", name):
            found.add(name)
        elif controllers:
            # With native multipath, the disk belongs to a subsystem, which names its controllers.
            subsystem = _SUBSYSTEM.search(_optional_link(files, f"{_CLASS}/block/{name}"))
            if subsystem and not controllers.isdisjoint(
                list_names(files, f"{_CLASS}/nvme-subsystem/{subsystem.group(1)}")
            ):
                found.add(name)
    return frozenset(found)


def _mounts(files: KernelFiles) -> Iterator[tuple[str, str, str]]:
    """Yield the block device, its number, and the mount point of each mount of the host. Raises OSError.

    The number counts where the name is another one (``/dev/root``, a link). With btrfs only the name counts.
    """
    for row in files.read(f"{_INIT}/mountinfo").splitlines():
        words, _, rest = row.partition(" - ")
        source = rest.split(" ")[1] if rest.count(" ") else ""
        if source.startswith("/dev/"):
            _, _, number, _, point, *_ = words.split(" ")
            point = _OCTAL.sub(lambda code: chr(int(code.group(1), 8)), point)
            for device in source.split(":"):  # bcachefs names all its disks
                yield device.removeprefix("/dev/"), number, point


# -- network


_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Route = tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]
_Address = tuple[str, ipaddress.IPv6Address]


class HostNetwork(msgspec.Struct, frozen=True):
    """The host's routes and addresses: a phrase for each network interface, by its name."""

    needed: Mapping[str, str]
    """What the node cannot lose: the default route, its own address."""
    configured: Mapping[str, str]
    """Any other address or route: the host's storage may depend on it (iSCSI, NFS)."""


def read_network(files: KernelFiles, node_addresses: Collection[str]) -> HostNetwork:
    """Read the host's routes and addresses. Raises OSError."""
    routes, addresses = tuple(_routes(files)), tuple(_addresses(files))
    needed = _needed_interfaces(routes, addresses, [ipaddress.ip_address(text) for text in node_addresses])
    return HostNetwork(dict(needed), dict(_configured_interfaces(routes, addresses)))


def network_uses(files: KernelFiles, own: Collection[str], needed: Mapping[str, str]) -> Iterator[str]:
    """Yield what on the host needs the network interfaces ``own`` of a function, as phrases. Raises OSError.

    ``needed`` are those of ``HostNetwork`` that count.
    """
    for name in own:
        folder = f"{_CLASS}/net/{name}"
        uppers = sorted(n.removeprefix("upper_") for n in list_names(files, folder) if n.startswith("upper_"))
        above = list(dict.fromkeys([*filter(None, [master(files, name)]), *uppers]))
        yield from (f"its interface {name} is part of {each}" for each in above)
        if name in needed:
            yield f"its interface {name} has {needed[name]}"


def all_uses(network: HostNetwork) -> Mapping[str, str]:
    """Return all that the host has on its interfaces; what the node cannot lose comes first."""
    return {**network.configured, **network.needed}


def _own_network_uses(files: KernelFiles, own: Collection[str], node_addresses: Collection[str]) -> Iterator[str]:
    if own:
        yield from network_uses(files, own, all_uses(read_network(files, node_addresses)))


def _needed_interfaces(
    routes: Iterable[_Route], addresses: Iterable[_Address], wanted: Collection[_IpAddress]
) -> Iterator[tuple[str, str]]:
    for name, network in routes:
        if not network.prefixlen:
            yield name, "the default route"
            continue
        yield from ((name, f"the node's address {each}") for each in wanted if each.version == 4 and each in network)
    for name, here in addresses:
        if here in wanted:
            yield name, f"the node's address {here}"


def _configured_interfaces(routes: Iterable[_Route], addresses: Iterable[_Address]) -> Iterator[tuple[str, str]]:
    for name, network in routes:
        if not (network.network_address.is_link_local or network.network_address.is_multicast):
            yield name, f"the host's route to {network}"
    for name, here in addresses:
        if not here.is_link_local:
            yield name, f"the host's address {here}"


def _routes(files: KernelFiles) -> Iterator[_Route]:
    """Yield the routes of the host, each with its interface."""
    for row in files.read(f"{_INIT}/net/route").splitlines()[1:]:
        name, destination, _, *rest = row.split()
        yield name, ipaddress.IPv4Network(f"{_ipv4(destination)}/{_ipv4(rest[4])}", strict=False)
    for row in (read_optional(files, f"{_INIT}/net/ipv6_route") or "").splitlines():
        words = row.split()
        if words[-1] != "lo":
            yield words[-1], ipaddress.IPv6Network((bytes.fromhex(words[0]), int(words[1], 16)), strict=False)


def _addresses(files: KernelFiles) -> Iterator[_Address]:
    """Yield the host's IPv6 addresses. The kernel lists IPv4 ones without their interfaces; their routes count."""
    for row in (read_optional(files, f"{_INIT}/net/if_inet6") or "").splitlines():
        words = row.split()
        yield words[-1], ipaddress.IPv6Address(bytes.fromhex(words[0]))


def _ipv4(word: str) -> str:
    """Return an address of ``/proc/net/route``, which is in the byte order of the host (little-endian)."""
    return str(ipaddress.IPv4Address(struct.pack("<I", int(word, 16))))
