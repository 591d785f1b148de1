"""Holders of a device, and the way to end each kind of holder."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.engine import holder_check as holding
from aliquot.core.engine.apply import apply
from aliquot.core.engine.run import Run
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan
from aliquot.errors import InUseError, StalePlanError
from unit.core.engine.hosts import VM, desired_state, host, vgpus
from unit.core.engine.memory import Bench, KilledError

replace = msgspec.structs.replace
FORCE = Policy("force", 1.0)


def shared(*holders: Holder) -> Inventory:
    """Build an A2 with one vGPU and these holders."""
    node = host("a2", "sriov-mdev", on=True)
    gpu = node.gpus[0]
    assert gpu.virtual is not None
    vgpu = Vgpu(gpu.virtual.functions[0].pci, 746, "NVIDIA A2-4Q", "u-1", ownership_token="c", holders=holders)
    return replace(node, gpus=(replace(gpu, vgpus=(vgpu,)),))


def behind(gpu: Gpu) -> tuple[Holder, ...]:
    """Return the holders that a GPU instance reports for the vGPUs on it."""
    return tuple(Holder("vgpu", v.function, v.type) for v in gpu.vgpus)


def run(bench: Bench, policy: Policy) -> Run:
    return Run(bench.context, policy, "run-1", bench.messages.append)


def test_a_vgpu_that_holds_something_is_destroyed_after_its_machine_was_ended() -> None:
    bench = Bench(shared(VM))
    pci = bench.memory.inventory.gpus[0].pci
    assert holding.ensure_idle(run(bench, FORCE), pci, behind).vgpus == ()
    assert bench.memory.terminated == [4711]
    assert [line.split()[0] for line in bench.memory.log] == ["destroy-vgpu"]
    assert [r.kind for r in bench.journal.lines] == ["intent", "done"], "recorded before the action"


def test_an_idle_vgpu_that_holds_something_needs_no_holder_ended() -> None:
    bench = Bench(shared())
    holding.ensure_idle(run(bench, FORCE), bench.memory.inventory.gpus[0].pci, behind)
    assert bench.memory.terminated == []
    assert bench.memory.inventory.gpus[0].vgpus == ()


def test_without_force_neither_is_touched() -> None:
    for node, policy in ((shared(), Policy()), (shared(VM), Policy("wait", 0.3))):
        bench = Bench(node)
        with pytest.raises(InUseError, match="NVIDIA A2-4Q"):
            holding.ensure_idle(run(bench, policy), node.gpus[0].pci, behind)
        assert (bench.memory.log, bench.memory.terminated) == ([], [])


def test_waiting_ends_when_the_apply_is_to_stop() -> None:
    # After Ctrl-C, or a failure on another GPU, the wait ends immediately instead of after an hour.
    bench = Bench(shared(VM))
    waiting = run(bench, Policy("wait", 3600.0))
    start = bench.context.clock.now()
    waiting.stop()
    with pytest.raises(InUseError, match="NVIDIA A2-4Q"):
        holding.ensure_idle(waiting, bench.memory.inventory.gpus[0].pci, behind)
    assert bench.context.clock.now() - start < 1.0


def test_who_cannot_be_ended_is_reported() -> None:
    # If the processes of the host are hidden, the engine cannot know which ones to end.
    bench = Bench(shared(Holder("process", "unknown", "processes of the host are hidden")))
    with pytest.raises(InUseError, match="not a process that can be ended here"):
        holding.ensure_idle(run(bench, FORCE), bench.memory.inventory.gpus[0].pci, behind)
    assert bench.memory.log == []


def test_a_vgpu_with_a_machine_is_reported_by_the_machine_alone() -> None:
    assert holding.all_holders(shared(VM).gpus[0]) == (VM,)
    (vgpu,) = holding.all_holders(shared().gpus[0])
    assert str(vgpu) == "vgpu 0000:07:00.4 (NVIDIA A2-4Q)"
    gpu = replace(shared(VM).gpus[0], holders=behind(shared(VM).gpus[0]))
    assert holding.all_holders(gpu) == (VM,)


def test_mixed_size_mode_is_not_changed_under_a_vgpu_that_came_meanwhile() -> None:
    before = host("l40s", "vendor-vfio", on=True)
    got = plan(before, desired_state(before, "L40S-24Q", "L40S-8Q", mixed_size=True))
    bench = Bench(before)
    gpu = before.gpus[0]
    assert gpu.virtual is not None
    came = Vgpu(gpu.virtual.functions[5].pci, 1152, "NVIDIA L40S-8Q", "u-9")
    now = replace(before, gpus=(replace(gpu, vgpus=(came,)),))
    bench.journal.on_append = lambda n: setattr(bench.memory, "inventory", now) if n == 1 else None
    outcome = apply(got, bench.context, bench.messages.append)
    assert isinstance(outcome.error, InUseError)
    assert bench.memory.log == []
    assert vgpus(bench.memory.inventory.gpus[0]) == [(came.function, "u-9", 1152)]


def test_a_plan_is_not_resumed_where_functions_were_switched_meanwhile() -> None:
    before = host("a2", "sriov-mdev", on=True)
    got = plan(before, desired_state(before, "A2-4Q", "A2-4Q"))
    bench = Bench(before)

    def kill(n: int, what: str) -> None:
        raise KilledError

    bench.memory.after = kill
    with pytest.raises(KilledError):
        apply(got, bench.context, bench.messages.append)
    bench.memory.after = lambda n, what: None
    gpu = bench.memory.inventory.gpus[0]
    assert gpu.virtual is not None
    fewer = replace(gpu.virtual, functions=gpu.virtual.functions[:8])
    bench.memory.inventory = replace(before, gpus=(replace(gpu, virtual=fewer),))
    with pytest.raises(StalePlanError):
        apply(got, bench.context, bench.messages.append)


def test_a_holder_that_does_not_end_is_waited_for_until_the_time_is_over() -> None:
    bench = Bench(shared(VM))
    pci = bench.memory.inventory.gpus[0].pci
    asked: list[int] = []
    bench.memory.terminate = asked.append  # type: ignore[method-assign, assignment]
    with pytest.raises(InUseError):
        holding.ensure_idle(run(bench, FORCE), pci, lambda gpu: (VM,))
    assert set(asked) == {4711}
    assert FORCE.timeout_s <= bench.context.clock.now() < 2 * FORCE.timeout_s
