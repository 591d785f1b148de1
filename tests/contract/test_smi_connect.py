"""Connections through the driver's programs, if its library is not available: which program serves which call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from aliquot.core.engine.programs import DriverPrograms, ProgramResult
from aliquot.core.model.xids import XidPolicy
from aliquot.errors import HardwareError, NoDriverError
from aliquot.hardware import kernel_files as files
from aliquot.hardware.kernel.sriov_manage import PROGRAM
from aliquot.hardware.nvidia_smi.backend import SmiBackend
from aliquot.hardware.nvidia_smi.host import SmiHost
from aliquot.hardware.nvml import backend as nvml
from aliquot.hardware.programs import LocalPrograms
from aliquot.node import connect as module
from aliquot.node.connect import connect
from aliquot.node.connection import Connection
from aliquot.node.driver_unavailable import UnavailableDriver
from aliquot.sim import lifecycle as control
from contract.conftest import Machine
from unit.hardware.kernel.tree import A2, Tree

Start = Callable[[str], Machine]


class Elsewhere:
    """Programs of a simulated node, as run in another environment. ``gone`` is that environment without any program."""

    location = "pod harvester-system/nvidia-driver-x"

    def __init__(self, node: Machine) -> None:
        self.gone = False
        self.commands: list[tuple[str, ...]] = []
        self._real = LocalPrograms(f"{control.folder(node.state_dir, node.name)}/driver")

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        if self.gone:
            raise NoDriverError(f"{self.location} is gone", next_step="kubectl get pods -n harvester-system")
        self.commands.append(tuple(command))
        return self._real.run(command, timeout_s)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Return a host without the driver's library. Its files are in a folder."""

    def no_library(**_words: object) -> None:
        raise NoDriverError("libnvidia-ml.so.1 is not installed on this host", next_step="install the NVIDIA driver")

    tree = Tree(tmp_path / "root")
    tree.folder("/sys/bus/pci/drivers/vfio-pci")
    monkeypatch.setattr(files, "RealFiles", lambda: tree)
    monkeypatch.setattr(nvml, "NvmlBackend", no_library)
    monkeypatch.setattr(module, "node_directories", lambda: (str(tmp_path / "run"), str(tmp_path / "lib")))
    return tree


def test_a_simulated_node_by_its_programs(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = machine("a2:mdev")
    with connect(node.name, state_dir=node.state_dir) as usual:
        expected = usual.backend.read()
    programs = Elsewhere(node)
    with connect(node.name, programs, state_dir=node.state_dir) as there:
        assert isinstance(there.nvml, SmiBackend)
        found = there.backend.read()
        assert (found.gpus, found.tables, found.fingerprint) == (
            *[expected.gpus, expected.tables],
            expected.fingerprint,
        )
        pci = found.gpus[0].pci
        there.backend.set_functions(pci, 16)
        gpu = there.backend.read_gpu(pci)
        assert gpu.virtual is not None
        assert len(gpu.virtual.functions) == 16
        there.backend.create_vgpu(pci, gpu.virtual.functions[0].pci, 746, "5f0d7a10-0000-4000-8000-000000000001")
        assert [v.type for v in there.backend.read().gpus[0].vgpus] == ["NVIDIA A2-4Q"]
    assert (PROGRAM, "-e", pci) in programs.commands
    monkeypatch.setenv("ALIQUOT_BACKEND", "smi")
    with connect(node.name, state_dir=node.state_dir) as chosen:
        assert isinstance(chosen.nvml, SmiBackend)
        assert len(chosen.backend.read().gpus[0].vgpus) == 1


def test_mixed_size_mode_by_commands(machine: Start) -> None:
    node = machine("l40s:vfio")
    with connect(node.name, Elsewhere(node), state_dir=node.state_dir) as there:
        pci = there.backend.read().gpus[0].pci
        there.backend.set_functions(pci, 32)
        for on in (True, False):
            there.backend.set_mixed_size(pci, on)
            assert there.nvml.mixed_size(pci) is on
            virtual = there.backend.read_gpu(pci).virtual
            assert virtual is not None
            assert virtual.mixed_size is on
        with connect(node.name, state_dir=node.state_dir) as other:
            other.backend.set_mixed_size(pci, True)
        assert there.nvml.mixed_size(pci) is True, (
            "a cached answer serves one call: the change by another connection is read"
        )


def test_mixed_size_mode_of_a_gpu_instance_by_commands(machine: Start) -> None:
    node = machine("rtx-pro-6000-blackwell-server-edition:vfio")
    with (
        connect(node.name, state_dir=node.state_dir) as usual,
        connect(node.name, Elsewhere(node), state_dir=node.state_dir) as there,
    ):

        def modes(connected: Connection) -> list[object]:
            return [i.mixed_size for i in connected.backend.read().gpus[0].instances]

        pci = usual.backend.read().gpus[0].pci
        usual.backend.set_mode(pci, True)
        usual.backend.set_functions(pci, 48)
        usual.backend.create_gpu_instance(pci, 47, 0, 3)
        assert (modes(usual), modes(there)) == ([False], [msgspec.UNSET]), "nvidia-smi does not show it"
        with pytest.raises(HardwareError, match="nvidia-smi cannot change it for a GPU instance"):
            there.backend.set_mixed_size(pci, True)
        usual.backend.set_mixed_size(pci, True)
        virtual = usual.backend.read_gpu(pci).virtual
        assert virtual is not None
        for number, type_id in enumerate((1558, 1555)):
            function, uuid = virtual.functions[number].pci, f"5f0d7a10-0000-4000-8000-00000000000{number}"
            usual.backend.create_vgpu(pci, function, type_id, uuid)
        assert modes(there) == modes(usual) == [True], "two sizes in one GPU instance prove it"


def test_the_driver_in_a_pod_of_a_machine_without_its_library(host: Tree, machine: Start) -> None:
    programs = Elsewhere(machine("a2:mdev"))
    with connect(programs=programs) as there:
        assert isinstance(there.nvml, SmiBackend)
        assert isinstance(there.host, SmiHost)
        assert there.backend.kernel.tools.sriov_manage == PROGRAM, "there, because the host has none"
        assert not there.simulated
        assert [g.product for g in there.nvml.read().gpus] == ["NVIDIA A2"]
        assert there.nvml.health(XidPolicy()).unwatched == ("0000:01:00.0",), "nvidia-smi reports no XIDs"
        assert there.nvml.health(XidPolicy()).poll(there.nvml.read()) == frozenset()


def test_a_pod_that_is_gone_says_both_reasons(host: Tree, machine: Start) -> None:
    host.function(A2, driver="nvidia")
    programs = Elsewhere(machine("a2:mdev"))
    programs.gone = True
    with pytest.raises(NoDriverError, match=r"pod harvester-system/nvidia-driver-x is gone") as caught:
        connect(programs=programs)
    assert caught.value.details == ("through its library: libnvidia-ml.so.1 is not installed on this host",)


@pytest.mark.parametrize("driver", ["", "nouveau"])
def test_a_gpu_without_nvidias_driver_can_be_passed_through_all_the_same(
    host: Tree, machine: Start, driver: str
) -> None:
    host.function(A2, driver=driver)
    with pytest.raises(NoDriverError):
        connect()
    with connect(all_gpus=True) as alone:
        assert isinstance(alone.nvml, UnavailableDriver)
        found = alone.backend.read()
        assert found.driver == "", "nobody answers"
        assert "NVML does not answer" in found.notes[0]
        (gpu,) = found.gpus
        assert gpu.virtual is not None
        assert (gpu.pci, gpu.passthrough, gpu.virtual.driver) == (A2, False, driver)
        assert alone.backend.read_gpu(A2) == gpu
        assert alone.backend.facts().gpus == ()
        assert alone.nvml.health(XidPolicy()).unwatched == ()
        with pytest.raises(NoDriverError):
            alone.show_all_gpus(False)
        assert alone.backend.read().gpus == (), "a role that needs the driver does not see it"
        alone.show_all_gpus(True)
        assert alone.backend.read().gpus == found.gpus
    gone: DriverPrograms = Elsewhere(machine("a30"))
    assert isinstance(gone, Elsewhere)
    gone.gone = True
    with connect(programs=gone, all_gpus=True) as alone:
        assert [g.pci for g in alone.backend.read().gpus] == [A2]


def test_a_driver_below_the_floor_is_too_old_by_commands_too(machine: Start) -> None:
    node = machine("a100-sxm4-40gb@450.80.02")
    with pytest.raises(NoDriverError, match=r"450\.80\.02"):
        connect(node.name, Elsewhere(node), state_dir=node.state_dir)


def test_a_pod_that_disappears_in_between_is_no_driver(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    programs = Elsewhere(node)
    with connect(node.name, programs, state_dir=node.state_dir) as there:
        pci = there.backend.read().gpus[0].pci
        programs.gone = True
        for act in (
            lambda: there.backend.read(),
            lambda: there.backend.set_mode(pci, True),
            lambda: there.backend.create_gpu_instance(pci, 9, 0, 4),
        ):
            with pytest.raises(NoDriverError, match="is gone"):
                act()
        programs.gone = False
        assert there.backend.set_mode(pci, True), "nothing was cached"


def test_facts_by_commands_are_those_of_the_library(machine: Start) -> None:
    # The exception is the PCI topology, which a scan of the bus reads.
    node = machine("a100-sxm4-40gb,tesla-t4")
    node.node.set_mode(0, True)
    node.node.create(0, "3g.20gb", 0)
    node.node.create(0, "1g.5gb+me", 4)
    direct, smi = node.open("direct").facts(), node.open("smi").facts()
    assert smi.mig_devices == direct.mig_devices
    assert (smi.driver, smi.cuda) == (direct.driver, direct.cuda)
    messages = [(g.pci, g.memory_mib, g.compute_capability, g.vgpu) for g in smi.gpus]
    assert messages == [(g.pci, g.memory_mib, g.compute_capability, g.vgpu) for g in direct.gpus]


def test_opening_is_one_command_and_facts_need_no_look_before(machine: Start) -> None:
    node = machine("a30")
    node.node.set_mode(0, True)
    node.node.create(0, "1g.6gb", 0)
    programs = Elsewhere(node)
    with connect(node.name, programs, state_dir=node.state_dir) as there:
        assert [c[1:] for c in programs.commands] == [("-q",)]
        facts = there.nvml.facts()
    assert [gpu.memory_mib for gpu in facts.gpus] == [24576]


def test_compute_capabilities_are_asked_for_once(machine: Start) -> None:
    # This includes a GPU that falls off the bus, after which nvidia-smi fails for all of them.
    node = machine("a100-sxm4-40gb*2")
    programs = Elsewhere(node)
    with connect(node.name, programs, state_dir=node.state_dir) as there:

        def asked() -> list[tuple[int, int]]:
            there.backend.read()
            return [gpu.compute_capability for gpu in there.backend.facts().gpus]

        assert [asked(), asked()] == [[(8, 0)] * 2] * 2
        node.node.inject_fault("lost", gpu=1)
        assert asked() == [(8, 0)]
        assert sum("compute_cap" in " ".join(command) for command in programs.commands) == 1


def test_a_look_is_three_commands_and_one_without_instances(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*4")
    programs = Elsewhere(node)
    with connect(node.name, programs, state_dir=node.state_dir) as there:
        backend = there.nvml
        backend.read()
        programs.commands.clear()
        backend.read()
        assert [c[1:] for c in programs.commands] == [("-q",)]
        node.node.set_mode(1, True)
        node.node.create(1, "3g.20gb", 0)
        backend.read()  # reads the product's table once and the UUID of each MIG device once
        programs.commands.clear()
        backend.read()
        assert [c[1:] for c in programs.commands] == [("-q",), ("mig", "-lgi"), ("mig", "-lci")]
