"""Nodes for the contract of the kernel's side, three ways: in this process, over a server with the real NVML code where
there is a compiler, and through a mount, as a machine's own files.
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
from support.simworld import Node
from system.sim.mounted import missing, mounted_files

KINDS = ("twin", "socket")
UUID = "5f0d7a10-0000-4000-8000-00000000000"


class Bench(Protocol):
    """A node and the handles on it. ``directory`` is where its owner map lies; ``open`` is another process of ours."""

    directory: str
    backend: NodeBackend[NodeGpuDriver]
    files: KernelFiles
    said: list[str]

    def control(self, do: str, **facts: object) -> dict[str, Any]: ...

    def open(self, files: KernelFiles | None = None, tools: Tools | None = None) -> NodeBackend[NodeGpuDriver]: ...

    def calls(self) -> list[dict[str, Any]]: ...


class Twin:
    """All in this process, on a clock that only counts."""

    def __init__(self, template: str, directory: str) -> None:
        self.directory = directory
        self.node = Node(template, directory=directory)
        self.files: KernelFiles = self.node.files
        self.said: list[str] = []
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
            report=self.said.append,
        )
        return NodeBackend(self.node.backend, kernel)

    def calls(self) -> list[dict[str, Any]]:
        return list(self.node.backend.memory.calls)


class NodeTools:
    """NVIDIA's ``sriov-manage`` as the node's server answers it."""

    sriov_manage = "/usr/lib/nvidia/sriov-manage"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        told = self._machine.node.sriov_manage("-e" if on else "-d", pci)
        return int(told["rc"]), "\n".join([*told["out"], *told["err"]])


class Served:
    """Over a server: its files by its socket, or through a mount."""

    def __init__(self, machine: Machine, directory: str, nvml: str, files: KernelFiles | None) -> None:
        self.directory = directory
        self.machine = machine
        self.files: KernelFiles = files or SimFiles(machine.node)
        self.said: list[str] = []
        self.clock: Clock = SystemClock()
        self._nvml = nvml
        self.backend = self.open()

    def control(self, do: str, **facts: object) -> dict[str, Any]:
        told = self.machine.node._control(do, **facts)
        if do == "reboot":
            self.backend.nvml.close()
            self.backend = self.open()
        return told

    def open(self, files: KernelFiles | None = None, tools: Tools | None = None) -> NodeBackend[NodeGpuDriver]:
        def boot() -> str:
            return str(self.machine.node.show()["boot_id"])

        own = tools or NodeTools(self.machine)
        kernel = Kernel(files or self.files, own, self.directory, boot, clock=self.clock, report=self.said.append)
        return NodeBackend(self.machine.open(self._nvml), kernel)

    def calls(self) -> list[dict[str, Any]]:
        return self.machine.node.calls()


Start = Callable[[str, str], Bench]


@pytest.fixture
def bench(state_dir: str, tmp_path: Path, machine: Callable[[str], Machine]) -> Iterator[Start]:
    """Starts a node from a template, in one of the KINDS."""
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
    """The first GPU, its virtual functions on where it has any."""
    first = gpu(bench)
    assert first.virtual is not None
    if first.virtual.total:
        bench.backend.set_functions(first.pci, first.virtual.total)
    return gpu(bench)


def carrier(found: Gpu, number: int = 0) -> str:
    """What carries a vGPU: a virtual function, or the GPU itself."""
    assert found.virtual is not None
    return found.virtual.functions[number].pci if found.virtual.functions else found.pci


def uuid(number: int) -> str:
    return f"{UUID}{number}"


def make(bench: Bench, found: Gpu, short: str, number: int = 0) -> Vgpu:
    """A vGPU by its type's short name, on the function of that number."""
    kind = types(bench).by_name[short]
    assert kind.id is not None
    function = carrier(found, number)
    bench.backend.create_vgpu(found.pci, function, kind.id, uuid(number))
    return next(v for v in gpu(bench).vgpus if v.uuid == uuid(number))


def end(bench: Bench, found: Gpu, vgpu: Vgpu) -> None:
    bench.backend.destroy_vgpu(found.pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token)
