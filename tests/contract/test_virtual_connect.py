"""Connections to hosts of VMs: a driver that does not answer, the node's own program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.errors import NoDriverError
from aliquot.hardware import kernel_files as files
from aliquot.hardware.nvml import backend as nvml
from aliquot.node import connect as module
from aliquot.node.connect import connect
from aliquot.node.driver_unavailable import UnavailableDriver
from contract.conftest import Machine
from unit.hardware.kernel.tree import A2, Tree

Start = Callable[[str], Machine]


class Opening:
    """A stub for opening NVML, which fails until ``works`` is set."""

    works = False

    def __init__(self, **_words: object) -> None:
        if not Opening.works:
            raise NoDriverError("the NVIDIA kernel driver is not loaded", next_step="modprobe nvidia")

    def read(self) -> Inventory:
        return Inventory("here", (), driver="580.1")

    def renumber(self) -> None:
        return

    def close(self) -> None:
        return


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return a host without a driver. Its files are in a folder."""
    tree = Tree(tmp_path / "root")
    tree.folder("/sys/bus/pci/drivers/vfio-pci")
    monkeypatch.setattr(files, "RealFiles", lambda: tree)
    monkeypatch.setattr(nvml, "NvmlBackend", Opening)
    monkeypatch.setattr(Opening, "works", False)
    monkeypatch.setattr(module, "node_directories", lambda: (str(tmp_path / "run"), str(tmp_path / "lib")))
    return tree


def test_no_driver_and_nothing_passed_through(host: Tree) -> None:
    host.function(A2, driver="")
    with pytest.raises(NoDriverError):
        connect()


def test_every_gpu_is_passed_through_and_the_driver_is_gone(host: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    host.function(A2, driver="vfio-pci")
    with connect() as connection:
        assert isinstance(connection.nvml, UnavailableDriver)
        inventory = connection.backend.read()
        (gpu,) = inventory.gpus
        assert (gpu.pci, gpu.passthrough, gpu.product, gpu.index) == (A2, True, "NVIDIA A2", 0)
        assert any("driver is not loaded" in note for note in inventory.notes)
        with pytest.raises(NoDriverError):
            connection.backend.set_mode(A2, True)
        assert connection.backend.read_gpu(A2).passthrough
        with connection.backend.suspend():
            connection.nvml.renumber()
        monkeypatch.setattr(Opening, "works", True)
        assert connection.backend.read().driver == "580.1", "it is queried again"


def test_the_nodes_own_program(machine: Start) -> None:
    node = machine("a2:vfio")
    with connect(node.name, state_dir=node.state_dir) as connection:
        found = connection.backend.read()
        assert found.host is not None
        assert found.host.sriov_manage
        connection.backend.set_functions(found.gpus[0].pci, 16)
        virtual = connection.backend.read().gpus[0].virtual
        assert virtual is not None
        assert len(virtual.functions) == 16
