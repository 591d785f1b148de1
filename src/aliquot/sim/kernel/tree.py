"""The file tree of a simulated node: ``/sys``, ``/proc`` and ``/dev``, to read, write and follow."""

from __future__ import annotations

import errno
import stat
from typing import NamedTuple

from aliquot.sim.kernel import devices, host_devices, nodes, pci, proc, rules, usb
from aliquot.sim.kernel import kernel_writes as writes
from aliquot.sim.kernel.devices import refuse
from aliquot.sim.kernel.kernel_writes import KernelWrite
from aliquot.sim.kernel.tree_entries import Dir, Entry, File, SymbolicLink, WritableFile, folder, line, text, up
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession

_MAX_LINKS = 40


class TreeSnapshot(NamedTuple):
    """A tree for one ``structure`` of the node, valid until a time on its clock. ``found`` holds the entries that were
    looked up, with their resolved paths, by path and whether a link at its end was followed.
    """

    root: Dir
    structure: int
    until: float
    found: dict[tuple[str, bool], tuple[str, Entry]]


def _parts(path: str) -> list[str]:
    """Return the names in a path, last first."""
    return [w for w in reversed(path.split("/")) if w and w != "."]


class Tree:
    """The files of one node. A path is absolute; every method raises OSError with the kernel's errno."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self._snapshot = TreeSnapshot(folder({}), -1, 0.0, {})

    def read(self, path: str) -> str:
        """Return the whole text including its newline; one character per byte for a binary file."""
        entry = self._find(path)[1]
        if isinstance(entry, Dir):
            raise refuse(errno.EISDIR)
        if not isinstance(entry, File) or entry.read is None:
            raise refuse(errno.EACCES)
        return entry.read()

    def write(self, path: str, value: str, session: SimSession) -> None:
        """Write a text once. A write to any file is a write call of the node: logged, and subject to faults."""
        real, entry = self._find(path)
        if isinstance(entry, Dir):
            raise refuse(errno.EISDIR)
        if not isinstance(entry, File) or entry.write is None:
            raise refuse(errno.EACCES)
        number, apply, quiet = entry.write
        gpu = number if number >= 0 else self._gpu_of(value)
        writes.execute(self.node, session, KernelWrite("SysfsWrite", gpu, real, value, quiet), lambda: apply(value))

    def _gpu_of(self, value: str) -> int:
        """Return the GPU that a value written to a driver's file names, -1 for none."""
        try:
            return devices.find(self.node, value).gpu.state.index
        except OSError:
            return -1

    def names(self, path: str) -> tuple[str, ...]:
        entry = self._find(path)[1]
        if not isinstance(entry, Dir):
            raise refuse(errno.ENOTDIR)
        return tuple(entry.entries)

    def link(self, path: str) -> str:
        entry = self._find(path, last=False)[1]
        if not isinstance(entry, SymbolicLink):
            raise refuse(errno.EINVAL)
        return entry.target

    def real(self, path: str) -> str:
        return self._find(path)[0]

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def claimed(self, path: str) -> bool:
        """Report whether a disk or partition is open exclusively."""
        return host_devices.is_claimed(self.node, path.removeprefix("/dev/"))

    def stat(self, path: str) -> dict[str, object]:
        """Return kind (dir, file, link, device), mode, size in bytes, and whether the text is binary. The last part of
        the path is not followed.
        """
        entry = self._find(path, last=False)[1]
        if isinstance(entry, SymbolicLink):
            return {"kind": "link", "mode": stat.S_IFLNK | 0o777, "size": len(entry.target), "binary": False}
        if isinstance(entry, Dir):
            return {"kind": "dir", "mode": stat.S_IFDIR | 0o755, "size": 0, "binary": False}
        if entry.device:
            return {"kind": "device", "mode": stat.S_IFCHR | entry.mode, "size": 0, "binary": False}
        size = 64 if entry.binary else 4096
        return {"kind": "file", "mode": stat.S_IFREG | entry.mode, "size": size, "binary": entry.binary}

    # -- path lookup

    def _find(self, path: str, last: bool = True) -> tuple[str, Entry]:
        """Return the entry at a path, and its path with all links resolved. ``last``: also follow a link at the end."""
        snapshot = self._current()
        known = snapshot.found.get((path, last))
        if known is None:
            known = snapshot.found[path, last] = self._walk(snapshot.root, path, last)
        return known

    @staticmethod
    def _walk(top: Dir, path: str, last: bool) -> tuple[str, Entry]:
        if not path.startswith("/"):
            raise refuse(errno.ENOENT)
        todo = _parts(path)
        trail: list[tuple[str, Entry]] = []
        links = 0
        while todo:
            word = todo.pop()
            if word == "..":
                del trail[-1:]
                continue
            current = trail[-1][1] if trail else top
            if not isinstance(current, Dir):
                raise refuse(errno.ENOTDIR)
            found = current.get(word)
            if found is None:
                raise refuse(errno.ENOENT)
            if isinstance(found, SymbolicLink) and (todo or last):
                links += 1
                if links > _MAX_LINKS:
                    raise refuse(errno.ELOOP)
                if found.target.startswith("/"):
                    trail.clear()
                todo += _parts(found.target)
            else:
                trail.append((word, found))
        return "/" + "/".join(name for name, _ in trail), trail[-1][1] if trail else top

    def _current(self) -> TreeSnapshot:
        """Return the current tree. It is built again if something has changed, or has appeared over time."""
        node, snapshot, now = self.node, self._snapshot, self.node.environment.now()
        if snapshot.structure != node.structure or now >= snapshot.until:
            structure = node.structure
            times = [t for g in node.gpus for f in g.state.functions for t in (f.visible, f.ready) if t > now]
            snapshot = self._snapshot = TreeSnapshot(_root(node), structure, min(times, default=float("inf")), {})
        return snapshot


def _root(node: SimNode) -> Dir:
    return folder({"sys": Dir(lambda: _sys(node)), "proc": proc.proc(node), "dev": proc.dev(node)})


def _sys(node: SimNode) -> dict[str, Entry]:
    buses: dict[str, Entry] = {"pci": _pci_bus(node), "usb": folder({"devices": Dir(lambda: usb.devices(node))})}
    classes: dict[str, Entry] = {"iommu": folder({"dmar0": folder({})} if node.state.iommu else {})}
    classes |= host_devices.classes(node)
    if proc.has_mdev(node):
        buses["mdev"] = _mdev_bus(node)
        classes["mdev_bus"] = Dir(lambda: {a: up(2, f) for a, f in _parents(node)})
    groups = Dir(lambda: _groups(node))
    return {
        "bus": folder(buses),
        "class": folder(classes),
        "devices": Dir(lambda: _bridges(node)),
        "kernel": folder({"iommu_groups": groups}),
        "module": folder({m: folder({"initstate": text("live\n"), "refcnt": text("0\n")}) for m in proc.modules(node)}),
    }


def _bridges(node: SimNode) -> dict[str, Entry]:
    """Return ``/sys/devices``: a host bridge per PCI domain, with the root ports behind it, and virtual devices."""
    found: dict[str, dict[str, Entry]] = {f"pci{usb.CONTROLLER[:7]}": {usb.CONTROLLER: usb.controller(node)}}
    for gpu in node.gpus:
        bridge = found.setdefault(f"pci{gpu.state.pci[:4]}:00", {})
        bridge[pci.port_address(gpu.state)] = nodes.port(node, gpu)
    return {"virtual": host_devices.virtual(node), **{name: folder(ports) for name, ports in found.items()}}


def _pci_bus(node: SimNode) -> Dir:
    def listed() -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for gpu in node.gpus:
            found[pci.port_address(gpu.state)] = up(3, pci.port_folder(gpu.state))
        for device in devices.all_functions(node):
            found[device.address] = up(3, pci.device_folder(device.gpu.state, device.address))
        return dict(sorted(found.items()))

    def one(address: str) -> Entry | None:
        now = node.environment.now()
        for gpu in node.gpus:
            if devices.lies_on(gpu, address, now):
                return up(3, pci.device_folder(gpu.state, address))
            if pci.port_address(gpu.state) == address:
                return up(3, pci.port_folder(gpu.state))
        return None

    probe = File(write=WritableFile(-1, lambda value: devices.probe_again(node, value)))
    return folder(
        {
            "devices": Dir(listed, one),
            "drivers": nodes.drivers(node),
            "drivers_probe": probe,
            "drivers_autoprobe": text("1\n"),
        }
    )


def _parents(node: SimNode) -> list[tuple[str, str]]:
    """Return the functions that carry mdevs, and their directories below /sys."""
    now = node.environment.now()
    found = []
    for device in devices.all_functions(node):
        framework = rules.vgpu_framework(device.gpu.state)
        carries = (framework == "mdev" and device.physical) or (framework == "sriov-mdev" and device.virtual)
        if carries and device.driver(now) == devices.NVIDIA:
            found.append((device.address, pci.device_folder(device.gpu.state, device.address)))
    return found


def _mdev_folders(node: SimNode) -> dict[str, str]:
    """Return every mdev's directory below /sys, by UUID."""
    return {
        v.uuid: f"{pci.device_folder(g.state, v.function)}/{v.uuid}" for g in node.gpus for v in g.state.vgpus if v.uuid
    }


def _mdev_bus(node: SimNode) -> Dir:
    listed = Dir(lambda: {uuid: up(3, where) for uuid, where in _mdev_folders(node).items()})
    bound = Dir(lambda: {uuid: up(4, where) for uuid, where in _mdev_folders(node).items()})
    return folder({"devices": listed, "drivers": folder({"nvidia-vgpu-vfio": bound})})


def _groups(node: SimNode) -> dict[str, Entry]:
    """Return ``/sys/kernel/iommu_groups``; an mdev has a group even if the IOMMU is off."""
    found: dict[int, dict[str, Entry]] = {}
    if node.state.iommu:
        for gpu in node.gpus:
            port = pci.port_address(gpu.state)
            found.setdefault(gpu.state.index, {})[port] = up(4, pci.port_folder(gpu.state))
        for device in devices.all_functions(node):
            where = pci.device_folder(device.gpu.state, device.address)
            found.setdefault(devices.group(node, device), {})[device.address] = up(4, where)
    folders = _mdev_folders(node)
    for gpu in node.gpus:
        for vgpu in gpu.state.vgpus:
            if vgpu.uuid:
                found.setdefault(vgpu.group, {})[vgpu.uuid] = up(4, folders[vgpu.uuid])
    return {
        str(number): folder({"devices": folder(members), "type": line(lambda: "DMA-FQ")})
        for number, members in sorted(found.items())
    }


class FileAnswer(NamedTuple):
    """The answer to a file request: a value, or the kernel's errno."""

    value: object = None
    errno: int = 0


def handle_request(tree: Tree, session: SimSession, op: str, path: str, data: str) -> FileAnswer:
    """Execute one request by name. Raises KeyError for an unknown operation."""
    reads = {
        "read": tree.read,
        "names": tree.names,
        "link": tree.link,
        "real": tree.real,
        "exists": tree.exists,
        "claimed": tree.claimed,
        "stat": tree.stat,
    }
    try:
        if op == "write":
            tree.write(path, data, session)
            return FileAnswer()
        return FileAnswer(reads[op](path))
    except OSError as error:
        return FileAnswer(errno=error.errno or errno.EIO)
