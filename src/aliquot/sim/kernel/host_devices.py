"""The files of devices of other vendors in the simulated kernel: network interfaces, disks, mounts, swap and routes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from aliquot.sim.kernel import pci
from aliquot.sim.kernel.tree_entries import Dir, Entry, File, SymbolicLink, WritableFile, folder, text, up
from aliquot.sim.node import SimNode
from aliquot.sim.state import GpuState, NeighbourState

_SECTORS = "8"
_FIRST_NUMBER = 2
"""The function number of a port's first virtual function."""
_FIRST_GROUP = 60
_ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
_NET_DEPTH = 6
"""The depth of a network interface's directory below /sys: devices/pciDDDD:BB/PORT/ADDRESS/net/NAME."""


def entries(node: SimNode, gpu: GpuState, state: NeighbourState) -> dict[str, Entry]:
    """Return what the directory of a function has besides the entries of every function."""
    found: dict[str, Entry] = {}
    if state.physfn:
        found["physfn"] = up(1, state.physfn)
    virtual = [pci.neighbour_address(gpu, each) for each in gpu.others if each.physfn and each.physfn == state.address]
    if state.total:
        found |= {
            "sriov_totalvfs": text(f"{state.total}\n"),
            "sriov_numvfs": File(
                lambda: f"{len(virtual)}\n", WritableFile(gpu.index, lambda value: set_count(gpu, state, value))
            ),
        }
        found |= {f"virtfn{number}": up(1, address) for number, address in enumerate(virtual)}
    if state.driver != state.native:
        return found
    if state.interface:
        master: dict[str, Entry] = {}
        if state.master:
            target = f"devices/virtual/net/{state.master}"
            master = {name: up(_NET_DEPTH, target) for name in ("master", f"upper_{state.master}")}
        found["net"] = folder({state.interface: folder(master)})
    if state.blocks:
        disk, *partitions = state.blocks
        parts: dict[str, Entry] = {name: _block(node, name, {}) for name in partitions}
        found["block"] = folder({disk: _block(node, disk, parts)})
    return found


def set_count(gpu: GpuState, port: NeighbourState, value: str) -> None:
    """Write ``sriov_numvfs`` of a network port, in the order of the kernel's checks (drivers/pci/iov.c). The functions
    have the ids after the port's, and interfaces that end with ``v`` and their number.
    """
    wanted = int(value.strip()) if value.strip().isdecimal() else -1
    existing = [each for each in gpu.others if each.physfn == port.address]
    if wanted < 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if wanted > port.total:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    if wanted == len(existing):
        return
    if port.driver != port.native:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    if wanted and existing:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    vendor, _, device = port.ids.partition(":")
    used = {each.group for each in gpu.others}
    groups = [number for number in range(_FIRST_GROUP, _FIRST_GROUP + port.total + len(used)) if number not in used]
    made = [
        NeighbourState(
            port.native,
            address=_virtual_address(port.address, number),
            ids=f"{vendor}:{int(device, 16) + 1:04x}",
            native=port.native,
            group=groups[number],
            physfn=port.address,
            temporary=True,
            interface=f"{port.interface.removesuffix('np0')}v{number}",
        )
        for number in range(wanted)
    ]
    gpu.others = [*(each for each in gpu.others if each.physfn != port.address), *made]


def _virtual_address(address: str, number: int) -> str:
    """Return the address of a port's virtual function. A device has eight functions: later ones are on the next."""
    routing = _FIRST_NUMBER + number
    return f"{address[:-4]}{routing >> 3:02x}.{routing & 7}"


def _block(node: SimNode, name: str, parts: dict[str, Entry]) -> Dir:
    holders = [holder for held, holder in node.state.block_holders.items() if held == name]
    links: dict[str, Entry] = {each: SymbolicLink(f"/sys/devices/virtual/block/{each}") for each in holders}
    return folder({"size": text(_SECTORS), "holders": folder(links), **parts})


def is_claimed(node: SimNode, name: str) -> bool:
    """Report whether a disk or partition is open exclusively. Each excludes the other, as in Linux (block/bdev.c)."""
    used = node.state.mounts.keys() | node.state.block_holders.keys()
    disks = [state.blocks for gpu in node.gpus for state in gpu.state.others if name in state.blocks]
    return any(each in used for disk, *parts in disks for each in ((disk, *parts) if name == disk else (disk, name)))


def classes(node: SimNode) -> dict[str, Entry]:
    """Return the directories of /sys/class."""
    blocks: dict[str, Entry] = {}
    interfaces: dict[str, Entry] = {"lo": up(2, "devices/virtual/net/lo")}
    for where, state in _with_driver(node):
        for name in state.blocks:
            path = state.blocks[0] if name == state.blocks[0] else f"{state.blocks[0]}/{name}"
            blocks[name] = up(2, f"{where}/block/{path}")
        if state.interface:
            interfaces[state.interface] = up(2, f"{where}/net/{state.interface}")
    return {"block": folder(blocks), "net": folder(interfaces)}


def virtual(node: SimNode) -> Dir:
    """Return /sys/devices/virtual: interfaces and block devices that no function has."""
    masters = {state.master for gpu in node.gpus for state in gpu.state.others if state.master}
    holders = sorted(node.state.block_holders.values())
    return folder(
        {
            "net": folder({name: folder({}) for name in ("lo", *sorted(masters))}),
            "block": folder({name: folder({}) for name in holders}),
        }
    )


def _with_driver(node: SimNode) -> Iterator[tuple[str, NeighbourState]]:
    for gpu in node.gpus:
        for state in gpu.state.others:
            if state.driver == state.native:
                yield pci.device_folder(gpu.state, pci.neighbour_address(gpu.state, state)), state


def init_process(node: SimNode) -> Dir:
    """Return the /proc directory of the host's first process, by which the host's mounts and routes are read."""
    mounts = "".join(
        f"{30 + number} 1 8:{number} / {point} rw,relatime shared:1 - ext4 /dev/{device} rw\n"
        for number, (device, point) in enumerate(node.state.mounts.items())
        if point.startswith("/")
    )
    routes = f"{node.state.route}\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" if node.state.route else ""
    if node.state.route:
        routes += f"{node.state.route}\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    return folder(
        {
            "comm": text("systemd\n"),
            "cmdline": text("/sbin/init\0"),
            "fd": folder({}),
            "mountinfo": text(mounts),
            "net": folder({"route": text(_ROUTES + routes), "ipv6_route": text(""), "if_inet6": text("")}),
        }
    )


def swaps(node: SimNode) -> Entry:
    """Return /proc/swaps."""
    rows = [f"/dev/{device} partition 8388604 0 -2\n" for device, point in node.state.mounts.items() if point == "swap"]
    return text("Filename Type Size Used Priority\n" + "".join(rows))
