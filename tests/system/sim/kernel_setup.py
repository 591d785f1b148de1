"""A simulated node's kernel in memory: its files, NVIDIA's program and VMs, without server, disk or clock."""

from __future__ import annotations

import errno
from typing import Any

import msgspec

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel.control_api import tree_of
from aliquot.sim.session import SimSession
from support.simfiles import InProcessFiles
from system.sim.memory import Memory

PCI = "/sys/bus/pci/devices"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


class Kernel(Memory):
    """A node without open NVML sessions. ``files`` are its files as a process of Aliquot reads them."""

    def __init__(self, template: str, address: str | None = None) -> None:
        super().__init__(template, mig=False)
        self.link.close()
        if address is not None:
            self.gpu.state.pci = address
            self.node.files_changed()
        self.files = InProcessFiles(tree_of(self.node), SimSession("", 4242))

    @property
    def gpu(self) -> SimGpu:
        return self.node.gpus[0]

    @property
    def pf(self) -> str:
        return f"{PCI}/{self.gpu.state.pci}"

    def ok(self, do: str, **facts: object) -> dict[str, Any]:
        code, text = self.control(do, **facts)
        assert code == 0, text
        return msgspec.json.decode(text, type=dict[str, Any])

    def manage(self, action: str = "-e", address: str = "ALL") -> int:
        return int(self.ok("sriov-manage", action=action, address=address)["rc"])

    def vfs(self, pf: str | None = None) -> list[str]:
        """Return the addresses of the visible virtual functions, by number."""
        folder = pf or self.pf
        links = [n for n in self.files.names(folder) if n.startswith("virtfn")]
        return [self.files.link(f"{folder}/virtfn{n}").removeprefix("../") for n in range(len(links))]

    def write(self, path: str, text: str) -> int:
        """Write a file. Returns the errno, or 0 if the write is accepted."""
        try:
            self.files.write(path, text)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def read(self, path: str) -> str | int:
        try:
            return self.files.read(path)
        except OSError as error:
            return error.errno or errno.EIO

    def listed(self, function: str) -> list[int]:
        """Return the type ids that the driver offers on a function now, in either framework."""
        folder = f"{PCI}/{function}"
        if self.files.exists(f"{folder}/nvidia"):
            head, *rows = self.files.read(f"{folder}/nvidia/creatable_vgpu_types").splitlines()
            assert head == "ID    : vGPU Name"
            return [int(row.partition(":")[0]) for row in rows]
        types = f"{folder}/mdev_supported_types"
        names = sorted(self.files.names(types), key=lambda n: int(n.removeprefix("nvidia-")))
        return [
            int(n.removeprefix("nvidia-")) for n in names if self.files.read(f"{types}/{n}/available_instances") != "0"
        ]

    def make(self, function: str, type_id: int, number: int = 1) -> int:
        """Create a vGPU in the function's framework. Returns the errno."""
        folder = f"{PCI}/{function}"
        if self.files.exists(f"{folder}/nvidia"):
            return self.write(f"{folder}/nvidia/current_vgpu_type", str(type_id))
        return self.write(f"{folder}/mdev_supported_types/nvidia-{type_id}/create", uuid(number))

    def drop(self, function: str) -> int:
        """Remove the vGPU of a function. Returns the errno."""
        folder = f"{PCI}/{function}"
        if self.files.exists(f"{folder}/nvidia"):
            return self.write(f"{folder}/nvidia/current_vgpu_type", "0")
        found = [n for n in self.files.names(folder) if n.count("-") == 4]
        return self.write(f"{folder}/{found[0]}/remove", "1")
