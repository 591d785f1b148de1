"""A whole simulated node in this process: the simulator's model behind the Backend port, and the engine on top.

No server, no socket, no disk: quick enough for property tests, and still the simulator's own answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.backends.gate import Gate
from aliquot.backends.sim.backend import SimBackend
from aliquot.config.adhoc import adhoc
from aliquot.engine.apply import apply
from aliquot.engine.world import Outcome, World
from aliquot.model.desired import Desired
from aliquot.model.facts import Facts
from aliquot.model.inventory import Inventory
from aliquot.planner.planning import plan
from sim.memory import Memory
from unit.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder


class InMemory(SimBackend):
    """SimBackend whose server is an object in this process; also the host that resets its GPUs."""

    def __init__(self, template: str, driver: str | None = None) -> None:
        self.memory = Memory(template, driver, mig=False)
        self.node = "n"
        self._gate = Gate(lambda: None, lambda: None)
        self._index = {}

    def _exchange(self, attempt: str, pci: str, line: str, repeatable: bool) -> tuple[list[int], str]:
        head, _, text = self.memory.link.answer(line).partition("|")
        code, *numbers = map(int, head.split())
        if code:
            from aliquot.backends import codes

            raise codes.error(code, attempt, gpu=pci)
        return numbers, text

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.memory.link.answer("bye")
        yield
        self.memory.link = self.memory.open(100)

    def reset(self, pci: str) -> None:
        self.memory.link.answer(f"DeviceReset {self._number(pci)} -1 -1")

    def terminate(self, pid: int) -> None:
        raise AssertionError("nobody holds anything here")


class Node:
    """A simulated node and what is done to it."""

    def __init__(self, template: str, driver: str | None = None) -> None:
        self.backend = InMemory(template, driver)

    def read(self) -> tuple[Inventory, Facts]:
        return self.backend.read(), self.backend.facts()

    def apply(self, desired: Desired) -> Outcome:
        """Plan and carry out, by the engine. Raises what it raises."""
        made = plan(self.backend.read(), desired)
        assert not made.blockers, made.blockers
        ports = World(self.backend, self.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder())
        return apply(made, ports, lambda line: None)

    def cut(self, gpus: str, wish: str) -> Node:
        """``cut("0-1", "3g.20gb,3g.20gb")``, as typed after ``aliquot apply --gpu 0-1 --mig``."""
        outcome = self.apply(self.wish(gpus, wish))
        assert outcome.status in ("done", "nothing"), outcome
        return self

    def wish(self, gpus: str, wish: str) -> Desired:
        return adhoc([gpus], [wish], self.backend.read())
