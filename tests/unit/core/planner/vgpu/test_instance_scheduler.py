"""The vGPU scheduler of GPU instances in plans: set before their vGPUs, drift, the way back, and the rules on it."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.actions import (
    Create,
    CreateVgpu,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetScheduler,
)
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.semantics import StepRefusedError, step
from aliquot.core.planner.verify import verify
from unit.core.planner.sharing import BARE, RTX, asked, blocker, done, kinds, replace

ONE, TWO = "DC-1-12Q*2", "DC-1-12Q*4"
"""vGPUs for one GPU instance and for two of the smallest profile."""


def requested(of: Gpu, vgpu: str, scheduler: str | None, mixed: bool | None = None, driver: str = "580.105.06") -> Plan:
    node = replace(factory.node(of), driver=driver)
    (found,) = adhoc(["0"], [], node, vgpu=[vgpu], mixed_size=mixed or False).gpus
    found = replace(found, scheduler=scheduler, mixed_size=mixed)
    return plan(node, Desired(gpus=(found,), name="x"))


def host(vgpu: str, scheduler: str | None = None) -> Gpu:
    """Return a GPU with vGPUs in GPU instances that have a scheduler."""
    of = factory.gpu(RTX, mig=True)
    return done(of, requested(of, vgpu, scheduler))


def schedulers(of: Gpu) -> list[object]:
    return [i.scheduler for i in of.instances]


def held(of: Gpu, instance: int) -> Gpu:
    """Return the GPU with a VM on the vGPUs of one GPU instance."""
    vgpus = (replace(v, holders=(factory.VM,)) if v.gpu_instance == instance else v for v in of.vgpus)
    return replace(of, vgpus=tuple(vgpus))


def test_it_is_set_after_the_gpu_instances_and_before_their_vgpus() -> None:
    of = factory.gpu(RTX, on=False)
    got = requested(of, TWO, "equal-share,2ms")
    assert kinds(got) == [SetMode, SetFunctions, Create, Create, SetScheduler, *[CreateVgpu] * 4]
    after = done(of, got)
    assert schedulers(after) == ["equal-share,2ms"] * 2
    for again in ("equal-share,2ms", "equal-share", None):
        assert requested(after, TWO, again).actions == ()
    assert schedulers(host(TWO)) == ["best-effort"] * 2
    assert kinds(requested(of, ONE, "best-effort")).count(SetScheduler) == 0


def test_idle_vgpus_are_created_again_as_they_were() -> None:
    empty = factory.gpu(RTX, mig=True)
    (first,) = requested(empty, ONE, None).desired.gpus
    on = tuple(replace(v, function=factory.address(n)) for v, n in zip(first.vgpus or (), (5, 7), strict=True))
    of = done(empty, asked(empty, replace(first, vgpus=on)))
    got = requested(of, ONE, "fixed-share")
    assert kinds(got) == [DestroyVgpu, DestroyVgpu, SetScheduler, CreateVgpu, CreateVgpu]
    assert got.actions[0].reason == "the scheduler changes only without vGPUs"
    assert [v.key for v in done(of, got).vgpus] == [v.key for v in of.vgpus]


def test_a_held_gpu_instance_blocks_only_itself() -> None:
    of = host(ONE, "equal-share")
    (first,) = [i.id for i in of.instances]
    grown = requested(held(of, first), TWO, "equal-share")
    assert kinds(grown) == [Create, SetScheduler, CreateVgpu, CreateVgpu]
    assert schedulers(done(held(of, first), grown)) == ["equal-share"] * 2
    both = done(of, grown)
    second = next(i.id for i in both.instances if i.id != first)
    mixture = replace(
        both, instances=tuple(replace(i, scheduler="best-effort") if i.id == second else i for i in both.instances)
    )
    healed = requested(held(mixture, first), TWO, "equal-share")
    assert kinds(healed) == [DestroyVgpu, DestroyVgpu, SetScheduler, CreateVgpu, CreateVgpu]
    gone = {a.function for a in healed.actions if isinstance(a, DestroyVgpu)}
    assert {v.gpu_instance for v in mixture.vgpus if v.function in gone} == {second}
    got = blocker(requested(held(mixture, second), TWO, "equal-share"))
    assert (got.rule, "guest" in str(got.holders)) == ("HELD", True)


def test_a_held_gpu_instance_may_be_left_for_later() -> None:
    of = host(ONE)
    busy = held(of, of.instances[0].id)
    (wanted,) = requested(of, TWO, "equal-share").desired.gpus
    assert blocker(asked(busy, wanted)).rule == "HELD"
    wanted = replace(wanted, spares_held=True)
    got = asked(busy, wanted)
    assert kinds(got) == [Create, SetScheduler, CreateVgpu, CreateVgpu]
    after = done(busy, got)
    assert schedulers(after) == ["best-effort", "equal-share"]
    assert asked(after, wanted).actions == ()
    idle = replace(after, vgpus=tuple(replace(v, holders=()) for v in after.vgpus))
    assert [d.kind for d in verify(factory.node(idle), Desired(gpus=(wanted,)))] == ["scheduler"]
    assert schedulers(done(idle, asked(idle, wanted))) == ["equal-share"] * 2


def test_gpu_instances_that_are_added_get_the_scheduler_of_the_others() -> None:
    of = host(ONE, "equal-share")
    got = requested(of, TWO, None)
    assert [a.reason for a in got.actions if isinstance(a, SetScheduler)] == ["as before"]
    assert schedulers(done(of, got)) == ["equal-share"] * 2
    assert SetScheduler not in kinds(requested(host(ONE), TWO, None))


def test_idle_vgpus_that_a_request_does_not_name_block_it() -> None:
    of = host(ONE)
    for instances in (None, tuple(requested(of, ONE, None).desired.gpus[0].instances or ())):
        bare = DesiredGpu(factory.PCI, mig=None, instances=instances, scheduler="equal-share")
        assert blocker(asked(of, bare)).rule == "FUNCTIONS_IN_USE"
        assert blocker(asked(held(of, of.instances[0].id), bare)).rule == "HELD"
    empty = replace(of, vgpus=(), instances=tuple(replace(i, held=False, holders=()) for i in of.instances))
    assert kinds(asked(empty, replace(BARE, scheduler="equal-share"))) == [SetScheduler]


def test_drift_names_the_gpu_instance() -> None:
    of = host(TWO, "equal-share")
    wanted = requested(of, TWO, "fixed-share").desired
    found = verify(factory.node(of), wanted)
    assert [d.kind for d in found] == ["scheduler"] * 2
    assert (
        f"GPU instance {of.instances[0].id} (1g.24gb+gfx) is equal-share, but should be fixed-share" in found[0].message
    )


def test_the_way_back_has_it() -> None:
    of = host(TWO, "equal-share,5ms")
    after = done(of, requested(of, TWO, "fixed-share"))
    (back,) = make_restore_point(factory.node(of), [of.pci]).gpus
    again = done(after, asked(after, back))
    assert again == of
    gone = done(of, requested(of, "none", None))
    assert schedulers(done(gone, asked(gone, back))) == ["equal-share,5ms"] * 2


def test_fixed_share_and_mixed_sizes_exclude_each_other() -> None:
    sizes = "DC-1-12Q,DC-1-6Q*2"
    of = factory.gpu(RTX, mig=True)
    assert blocker(requested(of, sizes, "fixed-share", mixed=True)).rule == "SCHEDULER"
    assert kinds(requested(of, sizes, "equal-share", mixed=True))[:3] == [Create, SetScheduler, SetMixedSize]
    fixed = host(ONE, "fixed-share")
    assert blocker(requested(fixed, sizes, None, mixed=True)).rule == "SCHEDULER"
    back = requested(fixed, sizes, "best-effort", mixed=True)
    assert [k for k in kinds(back) if k in (SetScheduler, SetMixedSize)] == [SetScheduler, SetMixedSize]
    done(fixed, back)
    mixed = done(of, requested(of, ONE, None, mixed=True))
    ended = requested(mixed, ONE, "fixed-share")
    assert [k for k in kinds(ended) if k in (SetScheduler, SetMixedSize)] == [SetMixedSize, SetScheduler]
    assert "fixed-share needs vGPUs of one size" in [a.reason for a in ended.actions]
    assert schedulers(done(mixed, ended)) == ["fixed-share"]


def test_the_model_refuses_what_the_driver_refuses() -> None:
    def refused(of: Gpu, action: SetScheduler | SetMixedSize) -> None:
        with pytest.raises(StepRefusedError):
            step(factory.node(of), action)

    fixed = SetScheduler(gpu=factory.PCI, reason="", scheduler="fixed-share")
    (node,) = step(factory.node(host(ONE)), fixed).gpus
    assert node == host(ONE), "a GPU instance with vGPUs is left as it is"
    empty = factory.gpu(RTX, mig=True)
    mixed = done(empty, requested(empty, ONE, None, mixed=True))
    refused(replace(mixed, vgpus=()), fixed)
    refused(replace(host(ONE, "fixed-share"), vgpus=()), SetMixedSize(gpu=factory.PCI, reason="", on=True))


@pytest.mark.parametrize(
    ("driver", "scheduler", "words"),
    [
        (
            "570.172.07",
            "equal-share",
            "scheduler of a GPU instance while it runs: R575 and later can",
        ),
        ("595.45.04", "equal-share,2ms", "write equal-share,500Hz"),
        ("580.105.06", "equal-share,2ms", ""),
    ],
    ids=["no-call", "slice", "fits"],
)
def test_drivers_that_cannot(driver: str, scheduler: str, words: str) -> None:
    got = requested(factory.gpu(RTX, mig=True), ONE, scheduler, driver=driver)
    assert [b.rule for b in got.blockers] == (["SCHEDULER"] if words else [])
    assert words in "".join(b.message for b in got.blockers)


def test_one_that_cannot_be_seen_is_neither_drift_nor_set() -> None:
    of = host(ONE)
    blind = replace(of, instances=tuple(replace(i, scheduler=msgspec.UNSET) for i in of.instances))
    got = blocker(requested(blind, ONE, "equal-share"))
    assert (got.rule, "cannot be seen" in got.message) == ("SCHEDULER", True)
    assert verify(factory.node(blind), got_desired(of)) == ()
    assert requested(blind, ONE, None).actions == ()


def got_desired(of: Gpu) -> Desired:
    return requested(of, ONE, "equal-share").desired
