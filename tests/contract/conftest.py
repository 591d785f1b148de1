"""Simulated nodes for the contract suites: one server per module, one node per test, two ways to access it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from aliquot.errors import AliquotError
from aliquot.hardware.node_backend import NodeGpuDriver
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

KINDS = ("direct", "shim")
EVERY = (*KINDS, "smi")
"""``smi`` runs nvidia-smi commands: it has no session and reports only what that program prints."""

_numbers = count(1)


class Machine:
    """A simulated node: ``node`` acts on it from outside, ``open`` returns backends that the test need not close."""

    def __init__(self, state_dir: str, template: str) -> None:
        self.state_dir = state_dir
        # A process keeps a loaded library by its path until it ends. No two nodes of a run therefore share a name.
        self.name = control.start(state_dir, template, f"n{next(_numbers)}")
        self.node = SimClient(state_dir, self.name)
        self._open: list[NodeGpuDriver] = []

    def open(self, kind: str) -> NodeGpuDriver:
        """Open a backend: ``direct`` is SimBackend, ``shim`` the real NVML backend with this node's library, ``smi``
        the one with its nvidia-smi.
        """
        backend = {"direct": self._direct, "shim": self._shim, "smi": self._smi}[kind]()
        self.closing(backend)
        return backend

    def closing(self, backend: NodeGpuDriver) -> None:
        """Close this backend, too, at the end."""
        self._open.append(backend)

    def _direct(self) -> NodeGpuDriver:
        from aliquot.node.simulated.backend import SimBackend

        return SimBackend(SimClient(self.state_dir, self.name))

    def _shim(self) -> NodeGpuDriver:
        from aliquot.hardware.nvml.backend import NvmlBackend

        try:
            library = control.library(self.state_dir, self.name)
        except AliquotError as error:
            pytest.skip(f"no shim library: {error.brief}")
        return NvmlBackend(library, self.name, proc_root=None)

    def _smi(self) -> NodeGpuDriver:
        from aliquot.hardware.kernel.pci import driver_gpus
        from aliquot.hardware.nvidia_smi.backend import SmiBackend
        from aliquot.hardware.programs import LocalPrograms
        from aliquot.sim.files import SimFiles

        programs = LocalPrograms(f"{control.folder(self.state_dir, self.name)}/driver")
        return SmiBackend(programs, self.name, lambda: driver_gpus(SimFiles(self.node)))

    def writes(self) -> list[str]:
        """Return the names of the write calls that reached the node."""
        return [c["call"] for c in self.node.calls() if c["call"] in control.WRITE_CALLS]

    def close(self) -> None:
        for backend in self._open:
            backend.close()
        self.node.close()
        control.stop(self.state_dir, self.name)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("state")
    yield str(folder)
    control.stop(str(folder))


@pytest.fixture
def machine(state_dir: str) -> Iterator[Callable[[str], Machine]]:
    """Start a node from a template. It is stopped after the test."""
    made: list[Machine] = []

    def start(template: str) -> Machine:
        made.append(Machine(state_dir, template))
        return made[-1]

    yield start
    for each in made:
        each.close()


def plain(value: object) -> object:
    """Convert a value to plain data, so that a comparison shows a readable difference."""
    return msgspec.to_builtins(value)
