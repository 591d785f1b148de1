"""A whole simulated node in this process: the simulator's model behind the Backend port, and the engine on top.

No server, no socket, no disk: quick enough for property tests, and still the simulator's own answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from aliquot.hardware.kernel.backend import Kernel
from aliquot.hardware.node_backend import NodeBackend
from aliquot.hardware.nvml.session_gate import SessionGate
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim.kernel.control_api import tree_of
from support.simfiles import InProcessFiles
from system.sim.memory import Memory
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder


class InMemory(SimBackend):
    """SimBackend whose server is an object in this process; also the host that resets its GPUs."""

    def __init__(self, template: str, driver: str | None = None) -> None:
        self.memory = Memory(template, driver, mig=False)
        self.node = "n"
        self._gate = SessionGate(lambda: None, lambda: None)
        self._index = {}

    def _exchange(self, attempt: str, pci: str, line: str, repeatable: bool) -> tuple[list[int], str]:
        head, _, text = self.memory.link.answer(line).partition("|")
        code, *numbers = map(int, head.split())
        if code:
            from aliquot.core.model import nvml_return_codes as codes

            raise codes.error(code, attempt, gpu=pci)
        return numbers, text

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.memory.link.answer("bye")
        try:
            yield
        finally:
            self.memory.link = self.memory.open(100)

    def reset(self, pci: str) -> None:
        self.memory.link.answer(f"DeviceReset {self._number(pci)} -1 -1")

    def terminate(self, pid: int) -> None:
        raise AssertionError("no process holds a GPU here")


class InMemoryTools:
    """NVIDIA's ``sriov-manage``, answered by the simulated kernel itself."""

    sriov_manage = "/usr/lib/nvidia/sriov-manage"

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        code, text = self._memory.control("sriov-manage", action="-e" if on else "-d", address=pci)
        assert code == 0, text
        reported = msgspec.json.decode(text, type=dict[str, object])
        lines = [*msgspec.convert(reported["out"], list[str]), *msgspec.convert(reported["err"], list[str])]
        return msgspec.convert(reported["rc"], int), "\n".join(lines)


class MemoryClock:
    """The clock of the node: the simulated kernel does delayed work while a caller sleeps."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def now(self) -> float:
        return self._memory.now

    def sleep(self, seconds: float) -> None:
        self._memory.now += seconds


class Node:
    """A simulated node and its changes. ``backend`` is the driver's side, ``whole`` includes the kernel's; its actions
    need ``directory``, for the owner map.
    """

    def __init__(self, template: str, driver: str | None = None, directory: str = "/nonexistent") -> None:
        self.backend = InMemory(template, driver)
        self.clock = MemoryClock(self.backend.memory)
        self.files = InProcessFiles(tree_of(self.backend.memory.node))
        tools = InMemoryTools(self.backend.memory)
        kernel = Kernel(self.files, tools, directory, self.boot, clock=self.clock)
        self.whole = NodeBackend(self.backend, kernel)

    def boot(self) -> str:
        """Return the id of this boot."""
        return str(self.backend.memory.node.state.boot_id)

    def read(self) -> tuple[Inventory, Facts]:
        return self.backend.read(), self.backend.facts()

    def apply(self, desired: Desired) -> ApplyOutcome:
        """Plan and apply with the engine. Raises what it raises."""
        made = plan(self.whole.read(), desired)
        assert not made.blockers, made.blockers
        ports = ExecutionContext(
            self.whole, self.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
        )
        return apply(made, ports, lambda line: None)

    def cut(self, gpus: str, request: str) -> Node:
        """Partition GPUs: ``cut("0-1", "3g.20gb,3g.20gb")`` does ``aliquot apply --gpu 0-1 --mig``."""
        outcome = self.apply(self.desired_state(gpus, request))
        assert outcome.status in ("done", "nothing"), outcome
        return self

    def desired_state(self, gpus: str, request: str) -> Desired:
        return adhoc([gpus], [request], self.backend.read())
