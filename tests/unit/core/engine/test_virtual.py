"""vGPUs, virtual functions and passthrough in memory: apply, verify, or roll back, with every failure and every
kill.
"""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import FrameworkName, Inventory, Vgpu
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.verify import verify
from aliquot.errors import BlockedError, HardwareError, InUseError, StalePlanError
from unit.core.engine.hosts import FRAMEWORKS, VM, alive, desired_state, held, host, vgpus
from unit.core.engine.memory import Bench, KilledError

replace = msgspec.structs.replace
SIZE = {"tesla-t4": "T4-2Q", "a2": "A2-2Q", "l40s": "L40S-8Q"}
OTHER = {"tesla-t4": "T4-4Q", "a2": "A2-4Q", "l40s": "L40S-12Q"}


def run(bench: Bench, got: Plan) -> ApplyOutcome:
    return apply(got, bench.context, bench.messages.append)


def done(node: Inventory, desired: Desired, policy: Policy | None = None) -> Inventory:
    """Return the node after a desired state was applied."""
    bench = Bench(node)
    outcome = run(bench, plan(node, desired, policy))
    assert outcome.status in ("done", "nothing"), outcome
    assert verify(bench.memory.inventory, desired) == ()
    return bench.memory.inventory


@pytest.fixture(params=FRAMEWORKS, ids=[w for _, w in FRAMEWORKS])
def empty(request: pytest.FixtureRequest) -> Inventory:
    """Return a host without vGPUs, its virtual functions off."""
    return host(*request.param)


def product(node: Inventory) -> str:
    return {"mdev": "tesla-t4", "": "a2"}.get(node.gpus[0].virtual.framework if node.gpus[0].virtual else "", "l40s")


def sized(node: Inventory, names: dict[str, str]) -> str:
    table = node.vgpu_table(node.gpus[0])
    assert table is not None
    return next(n for n in names.values() if n in table.by_name)


def five(node: Inventory) -> Desired:
    return desired_state(node, *[sized(node, SIZE)] * 5)


def test_five_vgpus_from_nothing(empty: Inventory) -> None:
    bench = Bench(empty)
    recorded: list[int] = []
    bench.memory.before = lambda n, what: recorded.append(sum(r.kind == "intent" for r in bench.journal.lines))
    outcome = run(bench, plan(empty, five(empty)))
    assert outcome.status == "done", outcome
    gpu = bench.memory.inventory.gpus[0]
    assert len(gpu.vgpus) == 5
    assert len({v.uuid for v in gpu.vgpus}) == 5
    assert recorded == list(range(1, bench.memory.writes + 1)), "each write is recorded before it happens"
    assert run(bench, plan(bench.memory.inventory, five(empty))).status == "nothing"


@pytest.mark.parametrize("nth", range(1, 9))
def test_any_failing_call_leads_back(empty: Inventory, nth: int) -> None:
    # From two vGPUs of one size, one of them held, to five: the third creation fails, and the previous state is
    # restored.
    before = held(done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2)), 0)
    bench = Bench(before)

    def fail(n: int, what: str) -> None:
        if n == nth:
            raise HardwareError(f"refused {what}")

    bench.memory.before = fail
    outcome = run(bench, plan(before, five(empty)))
    if bench.memory.writes < nth:
        assert outcome.status == "done"
        return
    assert outcome.status == "undone", outcome
    assert vgpus(bench.memory.inventory.gpus[0]) == vgpus(before.gpus[0])
    assert alive(bench.memory.inventory) == alive(before)


def test_a_failure_after_the_third_of_five_brings_back_what_was(empty: Inventory) -> None:
    # Another size: the previous vGPUs must be removed first. They are restored with their functions and UUIDs.
    before = done(empty, desired_state(empty, *[sized(empty, OTHER)] * 2))
    bench = Bench(before)
    created = 0

    def fail(n: int, what: str) -> None:
        nonlocal created
        created += what.startswith("create-vgpu")
        if created == 4 and what.startswith("create-vgpu"):
            raise HardwareError("an error that the driver does not explain")

    bench.memory.before = fail
    size = "L40S-8Q" if "L40S" in before.gpus[0].product else sized(empty, SIZE)
    outcome = run(bench, plan(before, desired_state(empty, *[size] * 5)))
    assert outcome.status == "undone", outcome
    assert vgpus(bench.memory.inventory.gpus[0]) == vgpus(before.gpus[0])
    assert verify(bench.memory.inventory, make_restore_point(before, [before.gpus[0].pci])) == ()
    assert any("is back" in s for s in outcome.sentences)
    assert any("is gone again" in s for s in outcome.sentences)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 9))
def test_killed_anywhere_and_run_again_finishes(empty: Inventory, nth: int, when: str) -> None:
    before = held(done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2)), 1)
    bench = Bench(before)
    got = plan(before, five(empty))

    def kill(n: int, what: str) -> None:
        if n == nth:
            raise KilledError

    setattr(bench.memory, when, kill)
    try:
        run(bench, got)
    except KilledError:
        bench.memory.before = bench.memory.after = lambda *a: None
        outcome = run(bench, got)
        assert outcome.status in ("done", "nothing"), outcome
    assert verify(bench.memory.inventory, five(empty)) == ()
    assert alive(bench.memory.inventory) == alive(before)


@pytest.mark.parametrize("nth", range(1, 8))
def test_ctrl_c_goes_back(empty: Inventory, nth: int) -> None:
    bench = Bench(empty)

    def press(n: int, what: str) -> None:
        if n == nth:
            raise KeyboardInterrupt

    bench.memory.after = press
    outcome = run(bench, plan(empty, five(empty)))
    if bench.memory.writes < nth:
        assert outcome.status == "done"
        return
    assert outcome.status == "stopped", outcome
    assert outcome.error is not None
    assert outcome.error.exit_code == 130
    assert bench.memory.inventory.gpus[0].vgpus == ()
    assert not bench.memory.inventory.gpus[0].virtual or not bench.memory.inventory.gpus[0].virtual.enabled


def test_a_cut_off_plan_is_not_resumed_over_a_foreign_vgpu(empty: Inventory) -> None:
    bench = Bench(empty)
    got = plan(empty, five(empty))

    def kill(n: int, what: str) -> None:
        if what.startswith("create-vgpu"):
            raise KilledError

    bench.memory.before = kill
    with pytest.raises(KilledError):
        run(bench, got)
    bench.memory.before = lambda n, what: None
    gpu = bench.memory.inventory.gpus[0]
    function = gpu.virtual.functions[9].pci if gpu.virtual and gpu.virtual.functions else gpu.pci
    unrelated = Vgpu(function, 16, "NVIDIA stranger", "00000000-0000-4000-8000-000000000000")
    bench.memory.inventory = replace(bench.memory.inventory, gpus=(replace(gpu, vgpus=(unrelated,)),))
    with pytest.raises(StalePlanError):
        run(bench, got)


# -- held


def test_a_held_vgpu_is_never_destroyed_under_refuse(empty: Inventory) -> None:
    before = held(done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2)), 0)
    got = plan(before, desired_state(empty, sized(empty, OTHER)))
    assert got.blocked
    assert [h for b in got.blockers for h in b.holders] == [VM]
    with pytest.raises(BlockedError):
        run(Bench(before), got)


def test_a_machine_that_starts_after_the_plan_keeps_its_vgpu(empty: Inventory) -> None:
    before = done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2))
    bench = Bench(held(before, 1))
    outcome = run(bench, plan(before, desired_state(empty, sized(empty, OTHER))))
    assert outcome.status == "undone"
    assert isinstance(outcome.error, InUseError)
    assert "vm 4711 (win10)" in outcome.error.brief
    assert vgpus(bench.memory.inventory.gpus[0]) == vgpus(before.gpus[0])
    assert alive(bench.memory.inventory)


def test_policy_wait_waits_for_the_machine_and_no_longer(empty: Inventory) -> None:
    before = held(done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2)), 0)
    got = plan(before, desired_state(empty, sized(empty, OTHER)), Policy("wait", 5.0))
    bench = Bench(before)
    bench.memory.released_at = 3.0
    assert run(bench, got).status == "done"
    assert 3.0 <= bench.clock.t < 4.0
    bench = Bench(before)
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert alive(bench.memory.inventory) == alive(before)


def test_policy_force_ends_the_machine_then_destroys(empty: Inventory) -> None:
    before = held(done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2)), 0)
    bench = Bench(before)
    assert run(bench, plan(before, desired_state(empty, sized(empty, OTHER)), Policy("force"))).status == "done"
    assert bench.memory.terminated == [4711]
    assert any("ending vm 4711 (win10)" in line for line in bench.messages)


def test_another_vgpu_on_the_function_is_not_touched(empty: Inventory) -> None:
    # A late release must not affect a new owner: the same place, but another ownership token.
    before = done(empty, desired_state(empty, *[sized(empty, SIZE)] * 2))
    got = plan(before, desired_state(empty))
    gpu = before.gpus[0]
    stolen = replace(
        before, gpus=(replace(gpu, vgpus=tuple(replace(v, ownership_token="another") for v in gpu.vgpus)),)
    )
    bench = Bench(stolen)
    with pytest.raises(StalePlanError):
        run(bench, got)
    late = Bench(before)
    late.journal.on_append = lambda n: setattr(late.memory, "inventory", stolen) if n == 1 else None
    outcome = run(late, got)
    assert isinstance(outcome.error, InUseError)
    assert "no longer" in outcome.error.brief
    assert not any(line.startswith("destroy-vgpu") for line in late.memory.log)


# -- virtual functions and passthrough


def test_functions_are_not_switched_under_a_vgpu_that_came_meanwhile() -> None:
    before = host("a2", "sriov-mdev", on=True)
    pci = before.gpus[0].pci
    got = plan(before, Desired((DesiredGpu(pci, None, None, functions=False, vgpus=()),)))
    bench = Bench(before)
    gpu = before.gpus[0]
    assert gpu.virtual is not None
    came = replace(gpu, vgpus=(Vgpu(gpu.virtual.functions[0].pci, 746, "NVIDIA A2-4Q", "u"),))
    bench.journal.on_append = lambda n: (
        setattr(bench.memory, "inventory", replace(before, gpus=(came,))) if n == 1 else None
    )
    outcome = run(bench, got)
    assert isinstance(outcome.error, InUseError)
    assert "NVIDIA A2-4Q" in outcome.error.brief
    assert bench.memory.log == []


def test_passthrough_there_and_back() -> None:
    before = host("a2", "sriov-mdev")
    pci = before.gpus[0].pci
    out = done(before, Desired((DesiredGpu(pci, None, None, passthrough=True),)))
    assert out.gpus[0].passthrough
    back = done(out, Desired((DesiredGpu(pci, None, None, passthrough=False),)))
    assert not back.gpus[0].passthrough


def test_a_gpu_that_a_machine_has_is_not_taken_back() -> None:
    out = done(
        host("a2", "sriov-mdev"), Desired((DesiredGpu(host("a2", "").gpus[0].pci, None, None, passthrough=True),))
    )
    gpu = replace(out.gpus[0], holders=(VM,))
    taken = replace(out, gpus=(gpu,))
    back = Desired((DesiredGpu(gpu.pci, None, None, passthrough=False),))
    assert plan(taken, back).blocked
    bench = Bench(taken)
    outcome = run(bench, plan(out, back))
    assert isinstance(outcome.error, InUseError)
    assert bench.memory.log == []
    forced = Bench(taken)
    assert run(forced, plan(taken, back, Policy("force"))).status == "done"
    assert forced.memory.terminated == [4711]


def test_a_function_that_a_machine_has_is_not_taken_back() -> None:
    before = host("a2", "sriov-mdev", on=True)
    gpu = before.gpus[0]
    assert gpu.virtual is not None
    first = gpu.virtual.functions[0]
    bound = done(before, Desired((DesiredGpu(gpu.pci, None, None, vfio_bound=(first.pci,)),)))
    back = Desired((DesiredGpu(gpu.pci, None, None, vfio_bound=()),))
    virtual = bound.gpus[0].virtual
    assert virtual is not None
    functions = tuple(replace(f, holders=(VM,)) if f.pci == first.pci else f for f in virtual.functions)
    taken = replace(bound, gpus=(replace(bound.gpus[0], virtual=replace(virtual, functions=functions)),))
    bench = Bench(taken)
    outcome = run(bench, plan(bound, back))
    assert isinstance(outcome.error, InUseError)
    assert bench.memory.log == []
    assert run(Bench(bound), plan(bound, back)).status == "done"


# -- MIG-backed, mixed sizes


def h100() -> Inventory:
    return host("h100-80gb-hbm3", "vendor-vfio")


def backed(node: Inventory) -> Desired:
    """Build a desired state with three MIG-backed vGPUs, and the GPU instances that they need."""
    gpu = node.gpus[0]
    profile = node.family(gpu).by_name["1g.10gb"]
    cut = DesiredInstance(profile.id, profile.name, (profile.default_compute.id,))
    names = ["H100XM-1-10C"] * 3
    return desired_state(node, *names, mig=True, instances=(cut,) * 3)


def test_mode_then_functions_then_instances_then_vgpus() -> None:
    before = h100()
    bench = Bench(before)
    assert run(bench, plan(before, backed(before))).status == "done"
    kinds = [line.split()[0] for line in bench.memory.log]
    order = [k for n, k in enumerate(kinds) if k != "create-ci" and (n == 0 or kinds[n - 1] != k)]
    assert order[:2] == ["mode", "functions"]
    assert [k for k in kinds if k in ("create", "create-vgpu")] == ["create"] * 3 + ["create-vgpu"] * 3
    assert kinds.index("functions") < kinds.index("create")
    gpu = bench.memory.inventory.gpus[0]
    assert len({v.gpu_instance for v in gpu.vgpus}) == 3


@pytest.mark.parametrize("nth", range(1, 12))
def test_mig_backed_any_failing_call_leads_back(nth: int) -> None:
    before = h100()
    bench = Bench(before)

    def fail(n: int, what: str) -> None:
        if n == nth:
            raise HardwareError(f"refused {what}")

    bench.memory.before = fail
    outcome = run(bench, plan(before, backed(before)))
    if bench.memory.writes < nth:
        assert outcome.status == "done"
        return
    assert outcome.status == "undone", outcome
    gpu = bench.memory.inventory.gpus[0]
    assert (gpu.mig.current, gpu.instances, gpu.vgpus) == ("disabled", (), ())
    assert gpu.virtual is not None
    assert not gpu.virtual.enabled


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 12))
def test_mig_backed_killed_anywhere_and_run_again_finishes(nth: int, when: str) -> None:
    before = h100()
    bench = Bench(before)
    got = plan(before, backed(before))

    def kill(n: int, what: str) -> None:
        if n == nth:
            raise KilledError

    setattr(bench.memory, when, kill)
    try:
        run(bench, got)
    except KilledError:
        bench.memory.before = bench.memory.after = lambda *a: None
        assert run(bench, got).status in ("done", "nothing")
    assert verify(bench.memory.inventory, backed(before)) == ()


def test_mixed_sizes_after_equal_ones_and_back_again_on_failure() -> None:
    before = done(host("l40s", "vendor-vfio"), desired_state(host("l40s", "vendor-vfio"), *["L40S-8Q"] * 4))
    mixed = desired_state(before, "L40S-24Q", "L40S-8Q", "L40S-4Q", mixed_size=True)
    after = done(before, mixed)
    assert after.gpus[0].virtual is not None
    assert after.gpus[0].virtual.mixed_size is True
    bench = Bench(before)
    bench.memory.before = lambda n, what: _refuse(what, "create-vgpu", 3)
    counter.clear()
    outcome = run(bench, plan(before, mixed))
    assert outcome.status == "undone", outcome
    assert vgpus(bench.memory.inventory.gpus[0]) == vgpus(before.gpus[0])
    assert "mixed-size mode is off again" in " ".join(outcome.sentences)


counter: list[str] = []


def _refuse(what: str, kind: str, nth: int) -> None:
    if what.startswith(kind):
        counter.append(what)
        if len(counter) == nth:
            raise HardwareError(f"refused {what}")


def test_undoing_leaves_a_foreign_vgpu_alone() -> None:
    # The vGPU was created during the apply. The rollback avoids it.
    before = host("a2", "sriov-mdev", on=True)
    bench = Bench(before)
    gpu = before.gpus[0]
    assert gpu.virtual is not None
    unrelated = Vgpu(gpu.virtual.functions[9].pci, 744, "NVIDIA A2-2Q", "11111111-0000-4000-8000-000000000000")

    def come(n: int, what: str) -> None:
        if n == 3:
            now = bench.memory.inventory.gpus[0]
            changed = replace(now, vgpus=(*now.vgpus, unrelated))
            bench.memory.inventory = replace(bench.memory.inventory, gpus=(changed,))
            raise HardwareError("refused")

    bench.memory.before = come
    outcome = run(bench, plan(before, desired_state(before, *["A2-2Q"] * 5)))
    assert outcome.status == "undone", outcome
    assert vgpus(bench.memory.inventory.gpus[0]) == [(unrelated.function, unrelated.uuid, 744)]


def test_an_mdev_that_libvirt_started_by_itself_is_the_one_that_was_asked() -> None:
    # libvirt and mdevctl create the mdevs that they keep as soon as their function appears, while a boot is being
    # restored.
    before = host("a2", "sriov-mdev", on=True)
    got = plan(before, desired_state(before, *["A2-2Q"] * 3))
    bench = Bench(before)

    def come(n: int, what: str) -> None:
        if what.startswith("create-vgpu") and sum(w.startswith("create-vgpu") for w in bench.memory.log) == 1:
            _, _, function, type_id, uuid = what.split()
            _put(bench, Vgpu(function, int(type_id), "NVIDIA A2-2Q", uuid))
            raise InUseError(f"{function} carries a vGPU by now")

    bench.memory.before = come
    outcome = run(bench, got)
    assert outcome.status == "done", outcome
    assert len(bench.memory.inventory.gpus[0].vgpus) == 3


@pytest.mark.parametrize("framework", ["sriov-mdev", "vendor-vfio"])
def test_another_vgpu_on_the_function_is_not_taken_for_it(framework: FrameworkName) -> None:
    # A vGPU with another UUID belongs to another owner. Without UUIDs, the owner is unknown.
    before = host("a2", framework, on=True)
    got = plan(before, desired_state(before, "A2-2Q"))
    bench = Bench(before)

    def come(n: int, what: str) -> None:
        _, _, function, type_id, uuid = what.split() if what.startswith("create-vgpu") else [""] * 5
        if function:
            theirs = uuid if framework == "vendor-vfio" else "11111111-0000-4000-8000-000000000000"
            _put(bench, Vgpu(function, int(type_id), "NVIDIA A2-2Q", theirs))
            raise InUseError(f"{function} carries a vGPU by now")

    bench.memory.before = come
    outcome = run(bench, got)
    assert (outcome.status, type(outcome.error)) == ("undone", InUseError)
    assert len(bench.memory.inventory.gpus[0].vgpus) == 1, "the rollback does not touch it"


def _put(bench: Bench, vgpu: Vgpu) -> None:
    gpu = bench.memory.inventory.gpus[0]
    others = tuple(v for v in gpu.vgpus if v.function != vgpu.function)
    bench.memory.inventory = replace(bench.memory.inventory, gpus=(replace(gpu, vgpus=(*others, vgpu)),))
