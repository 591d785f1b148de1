"""Nodes for the kernel part of the contract, in three forms.

The forms are a node in this process, a server with the real NVML code (if there is a compiler), and a mount that acts
as a host's own files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from aliquot.core.engine.ports import Clock
from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.foundation.threads import SystemClock
from aliquot.hardware.kernel.backend import Kernel
from aliquot.hardware.kernel.sriov_manage import Tools
from aliquot.hardware.kernel_files import KernelFiles
from aliquot.hardware.node_backend import NodeBackend, NodeGpuDriver
from aliquot.sim.files import SimFiles
from contract.conftest import Machine
from support.simnodes import Node
from system.sim.mounted import missing, mounted_files

KINDS = ("twin", "socket")
UUID = "5f0d7a10-0000-4000-8000-00000000000"


class Bench(Protocol):
    """A node and the handles on it. ``directory`` contains its owner map. ``open`` acts as another process of
    Aliquot.
    """

    directory: str
    backend: NodeBackend[NodeGpuDriver]
    files: KernelFiles
    messages: list[str]

    def control(self, do: str, **facts: object) -> dict[str, Any]: ...

    def open(self, files: KernelFiles | None = None, tools: Tools | None = None) -> NodeBackend[NodeGpuDriver]: ...

    def calls(self) -> list[dict[str, Any]]: ...


class Twin:
    """A node in this process, with a clock that only counts."""

    def __init__(self, template: str, directory: str) -> None:
        self.directory = directory
        self.node = Node(template, directory=directory)
        self.files: KernelFiles = self.node.files
        self.messages: list[str] = []
        self.backend = self.open()

    def control(self, do: str, **facts: object) -> dict[str, Any]:
        code, text = self.node.backend.memory.control(do, **facts)
        assert code == 0, text
        if do == "reboot":
            self.node.backend.memory.link = self.node.backend.memory.open(100)
            self.node.backend.renumber()
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}

    def open(self, files: KernelFiles | None = None, tools: Tools | None = None) -> NodeBackend[NodeGpuDriver]:
        own = self.node.whole.kernel
        kernel = Kernel(
            files or self.files,
            tools or own.tools,
            self.directory,
            self.node.boot,
            clock=self.node.clock,
            report=self.messages.append,
        )
        return NodeBackend(self.node.backend, kernel)

    def calls(self) -> list[dict[str, Any]]:
        return list(self.node.backend.memory.calls)


class NodeTools:
    """NVIDIA's ``sriov-manage``, answered by the node's server."""

    sriov_manage = "/usr/lib/nvidia/sriov-manage"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        reported = self._machine.node.sriov_manage("-e" if on else "-d", pci)
        return int(reported["rc"]), "\n".join([*reported["out"], *reported["err"]])


class Served:
    """A node on a server. Its files are read over its socket or through a mount."""

    def __init__(self, machine: Machine, directory: str, nvml: str, files: KernelFiles | None) -> None:
        self.directory = directory
        self.machine = machine
        self.files: KernelFiles = files or SimFiles(machine.node)
        self.messages: list[str] = []
        self.clock: Clock = SystemClock()
        self._nvml = nvml
        self.backend = self.open()

    def control(self, do: str, **facts: object) -> dict[str, Any]:
        reported = self.machine.node._control(do, **facts)
        if do == "reboot":
            self.backend.nvml.close()
            self.backend = self.open()
        return reported

    def open(self, files: KernelFiles | None = None, tools: Tools | None = None) -> NodeBackend[NodeGpuDriver]:
        def boot() -> str:
            return str(self.machine.node.show()["boot_id"])

        own = tools or NodeTools(self.machine)
        kernel = Kernel(files or self.files, own, self.directory, boot, clock=self.clock, report=self.messages.append)
        return NodeBackend(self.machine.open(self._nvml), kernel)

    def calls(self) -> list[dict[str, Any]]:
        return self.machine.node.calls()


Start = Callable[[str, str], Bench]


@pytest.fixture
def bench(state_dir: str, tmp_path: Path, machine: Callable[[str], Machine]) -> Iterator[Start]:
    """Start a node from a template, in one of the KINDS."""
    with ExitStack() as stack:

        def start(template: str, kind: str) -> Bench:
            directory = str(tmp_path / "lib")
            if kind == "twin":
                return Twin(template, directory)
            node = machine(template)
            if kind == "socket":
                return Served(node, directory, "shim", None)
            if missing():
                pytest.skip(missing())
            return Served(node, directory, "direct", stack.enter_context(mounted_files(state_dir, node.name)))

        yield start
        stack.close()


def gpu(bench: Bench, index: int = 0) -> Gpu:
    return bench.backend.read().gpus[index]


def types(bench: Bench) -> VgpuTable:
    inventory = bench.backend.read()
    found = inventory.vgpu_table(inventory.gpus[0])
    assert found is not None
    return found


def ready(bench: Bench) -> Gpu:
    """Enable the virtual functions of the first GPU, if it has any, and return that GPU."""
    first = gpu(bench)
    assert first.virtual is not None
    if first.virtual.total:
        bench.backend.set_functions(first.pci, first.virtual.total)
    return gpu(bench)


def carrier(found: Gpu, number: int = 0) -> str:
    """Return the address that carries a vGPU: a virtual function, or the GPU itself."""
    assert found.virtual is not None
    return found.virtual.functions[number].pci if found.virtual.functions else found.pci


def uuid(number: int) -> str:
    return f"{UUID}{number}"


def make(bench: Bench, found: Gpu, short: str, number: int = 0) -> Vgpu:
    """Create a vGPU by its type's short name on the function with that number."""
    kind = types(bench).by_name[short]
    assert kind.id is not None
    function = carrier(found, number)
    bench.backend.create_vgpu(found.pci, function, kind.id, uuid(number))
    return next(v for v in gpu(bench).vgpus if v.uuid == uuid(number))


def end(bench: Bench, found: Gpu, vgpu: Vgpu) -> None:
    bench.backend.destroy_vgpu(found.pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token)
