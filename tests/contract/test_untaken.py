"""GPUs without NVIDIA's driver: as whole GPUs they can be passed through and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError
from aliquot.hardware.kernel.backend import Kernel
from aliquot.hardware.node_backend import NodeBackend
from support.simnodes import InMemory, Node
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder

DRIVERS = "/sys/bus/pci/drivers"


class Machine:
    """Two A2, of which the first lost its driver: ``backend`` lists it, the default backend ``usual`` does not."""

    def __init__(self, directory: Path) -> None:
        self.node = Node("a2:mdev*2", directory=str(directory))
        self.usual = self.node.whole
        self.first = self.usual.read().gpus[0].pci
        with self.node.backend.suspend():
            self.node.files.write(f"{DRIVERS}/nvidia/unbind", self.first)
        self.node.backend.renumber()
        tools, clock = self.usual.kernel.tools, self.node.clock
        kernel = Kernel(self.node.files, tools, str(directory), self.node.boot, clock=clock, all_drivers=True)
        self.backend: NodeBackend[InMemory] = NodeBackend(self.node.backend, kernel)

    def gpu(self) -> Gpu:
        return self.backend.read().gpu(self.first)

    def ask(self, desired_gpu: DesiredGpu) -> ApplyOutcome:
        made = plan(self.backend.read(), Desired((desired_gpu,)))
        assert not made.blockers, made.blockers
        ports = ExecutionContext(
            self.backend, self.node.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
        )
        return apply(made, ports, lambda line: None)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_only_who_asks_for_everything_sees_it(machine: Machine) -> None:
    assert [g.pci for g in machine.usual.read().gpus] != [g.pci for g in machine.backend.read().gpus]
    gpu = machine.gpu()
    assert gpu.virtual is not None
    assert (gpu.index, gpu.product, gpu.uuid, gpu.passthrough) == (0, "NVIDIA A2", "", False)
    assert (gpu.virtual.driver, gpu.virtual.framework, gpu.virtual.functions) == ("", "", ())
    assert machine.backend.read().notes == (), "no intermediate state"
    assert machine.backend.read_gpu(machine.first) == gpu


def test_it_is_passed_through_and_taken_back_to_no_driver(machine: Machine) -> None:
    desired_gpu = DesiredGpu(machine.first, None, instances=None, passthrough=True)
    assert machine.ask(desired_gpu).status == "done"
    out = machine.gpu()
    assert out.virtual is not None
    assert (out.passthrough, out.virtual.driver) == (True, "vfio-pci")
    assert machine.ask(desired_gpu).status == "nothing"
    assert machine.ask(DesiredGpu(machine.first, None, instances=None, passthrough=False)).status == "done"
    back = machine.gpu()
    assert back.virtual is not None
    assert (back.passthrough, back.virtual.driver) == (False, "")


def test_a_machine_that_has_it_open_keeps_it(machine: Machine) -> None:
    machine.ask(DesiredGpu(machine.first, None, instances=None, passthrough=True))
    assert machine.node.backend.memory.control("vm-start", name="web", devices=[machine.first])[0] == 0
    assert machine.gpu().holders
    made = plan(machine.backend.read(), Desired((DesiredGpu(machine.first, None, instances=None, passthrough=False),)))
    assert made.blockers


def test_sharing_it_needs_its_driver(machine: Machine) -> None:
    # The plan uses the known facts. The driver, which is not bound to the GPU, refuses.
    with pytest.raises(HardwareError, match=machine.first):
        machine.backend.set_functions(machine.first, 16)


def test_the_other_gpu_is_as_before(machine: Machine) -> None:
    other = machine.backend.read().gpus[1]
    assert machine.usual.read().gpu(other.pci).uuid == other.uuid
    assert other.virtual is not None
    assert other.virtual.driver == "nvidia"
