"""Ctrl-C in the middle of a request to the kernel: the step completes, and the engine rolls back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ExecutionContext
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.plan import plan
from contract.test_virtual_faults import Cut
from contract.virtual_bench import Twin, make, ready, types
from unit.core.engine.memory import CountingClock, MemoryJournal, NoLock, OneByOne, Recorder

DEVICES = "/sys/bus/pci/devices"


class Pressed(Cut):
    """Kernel files that send SIGINT to this process before or after the n-th write."""

    def write(self, path: str, text: str) -> None:
        self._left -= 1
        if self._left == 0 and self._before:
            signal.raise_signal(signal.SIGINT)
        self._files.write(path, text)
        if self._left == 0 and not self._before:
            signal.raise_signal(signal.SIGINT)


def handed_out(node: Twin, gpu: Gpu) -> DesiredGpu:
    return DesiredGpu(gpu.pci, None, None, passthrough=True)


def taken_back(node: Twin, gpu: Gpu) -> DesiredGpu:
    node.backend.set_passthrough(gpu.pci, True)
    return DesiredGpu(gpu.pci, None, None, passthrough=False)


def other_vgpus(node: Twin, gpu: Gpu) -> DesiredGpu:
    found = ready(node)
    make(node, found, "A2-4Q", 0)
    make(node, found, "A2-4Q", 3)
    kind = types(node).by_name["A2-2Q"]
    return DesiredGpu(gpu.pci, None, (), vgpus=tuple(DesiredVgpu(kind.id or 0, kind.name) for _ in range(3)))


def one_function(node: Twin, gpu: Gpu) -> DesiredGpu:
    found = ready(node)
    make(node, found, "A2-4Q", 0)
    assert found.virtual is not None
    return DesiredGpu(gpu.pci, None, None, vfio_bound=(found.virtual.functions[5].pci,))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("requested", [handed_out, taken_back, other_vgpus, one_function])
def test_an_interrupt(tmp_path: Path, requested: object, nth: int, before: bool) -> None:
    assert callable(requested)
    node = Twin("a2:mdev*2", str(tmp_path))
    asked = Desired((requested(node, node.backend.read().gpus[0]),), name="x")
    was = node.backend.read()
    cut = Pressed(node.files, nth, before)
    backend = node.open(cut)
    made = plan(backend.read(), asked)
    assert not made.blockers
    ports = ExecutionContext(
        backend, node.node.backend, MemoryJournal(), CountingClock(), NoLock(), OneByOne(), Recorder()
    )  # one worker, in the thread that Ctrl-C interrupts
    outcome = apply(made, ports, lambda line: None)
    is_now = node.backend.read()
    if outcome.status == "done":
        assert cut._left > 0, "the signal was not sent"
        return
    assert (outcome.status, outcome.drift) == ("stopped", ()), outcome
    assert _reported(is_now) == _reported(was)
    assert {o for g in is_now.gpus for o in _overrides(node, g)} <= {"(null)", ""}


def _reported(inventory: Inventory) -> list[object]:
    """Return the inventory without the ownership tokens, which are new."""
    return [
        (g.pci, g.passthrough, g.virtual and (g.virtual.driver, g.virtual.functions), [v.uuid for v in g.vgpus])
        for g in inventory.gpus
    ]


def _overrides(node: Twin, gpu: Gpu) -> list[str]:
    if gpu.passthrough:
        return []
    functions = gpu.virtual.functions if gpu.virtual else ()
    return [node.files.read(f"{DEVICES}/{pci}/driver_override") for pci in (gpu.pci, *(f.pci for f in functions))]
