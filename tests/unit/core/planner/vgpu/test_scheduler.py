"""The vGPU scheduler in plans: when it is set, what is created again for it, drift, and the rules on it."""

from __future__ import annotations

import pytest

import support.vgpufactory as factory
from aliquot.core.config.boot_record import RecordedRequest, merge_requests, replay
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetScheduler
from aliquot.core.model.desired import Desired, DesiredVgpu
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.semantics import StepRefusedError, step
from aliquot.core.planner.verify import verify
from unit.core.planner.sharing import A2, BARE, H100, L40S, T4, asked, blocker, done, kind, kinds, replace


def host(product: str, scheduler: str, *shorts: str, mixed: bool = False, on: bool = True) -> Gpu:
    """Return a GPU with a scheduler, and a vGPU of each type on every second function."""
    of = factory.having(
        factory.gpu(product, mixed=mixed, on=on), *((factory.kind(product, s), 2 * n + 1) for n, s in enumerate(shorts))
    )
    assert of.virtual is not None
    return replace(of, virtual=replace(of.virtual, scheduler=scheduler))


def requested(
    of: Gpu, scheduler: str | None, *shorts: str, parameters: str | None = None, mixed: bool | None = None
) -> Plan:
    wanted = tuple(
        DesiredVgpu(number, name, parameters=parameters) for name, number in (kind(of.product, s) for s in shorts)
    )
    return asked(of, replace(BARE, vgpus=wanted, scheduler=scheduler, mixed_size=mixed))


@pytest.mark.parametrize("product", [A2, T4], ids=["a2", "t4"])
def test_idle_vgpus_are_created_again_as_they_were(product: str) -> None:
    of = host(product, "best-effort", "4Q", "4Q")
    got = requested(of, "fixed-share,2ms", "4Q", "4Q")
    assert kinds(got) == [DestroyVgpu, DestroyVgpu, SetScheduler, CreateVgpu, CreateVgpu]
    assert got.actions[0].reason == "the scheduler changes only without vGPUs"
    after = done(of, got)
    assert after.virtual is not None
    assert after.virtual.scheduler == "fixed-share,2ms"
    assert [v.key for v in after.vgpus] == [v.key for v in of.vgpus], "VMs know their vGPUs by these"
    assert requested(after, "fixed-share,2ms", "4Q", "4Q").actions == ()
    assert requested(after, "fixed-share", "4Q", "4Q").actions == (), "details that are not stated stay"
    assert requested(after, None, "4Q", "4Q").actions == ()


def test_they_keep_their_plugin_parameters() -> None:
    of = host(L40S, "best-effort", "8Q")
    of = replace(of, vgpus=(replace(of.vgpus[0], parameters="enable_uvm=1"),))
    assert [v.parameters for v in done(of, requested(of, "equal-share", "8Q")).vgpus] == ["enable_uvm=1"]
    plain = requested(of, "equal-share", "8Q", parameters="")
    assert [v.parameters for v in done(of, plain).vgpus] == [""]


def test_a_held_vgpu_blocks_it() -> None:
    of = host(A2, "best-effort", "4Q")
    held = replace(of, vgpus=(replace(of.vgpus[0], holders=(Holder("vm", "4711", "win10"),)),))
    got = blocker(requested(held, "equal-share", "4Q"))
    assert (got.rule, "win10" in str(got.holders)) == ("HELD", True)
    assert requested(held, "best-effort", "4Q").actions == ()


def test_idle_vgpus_that_a_request_does_not_name_block_it() -> None:
    of = host(A2, "best-effort", "4Q")
    got = blocker(asked(of, replace(BARE, scheduler="equal-share")))
    assert got.rule == "FUNCTIONS_IN_USE"


def test_virtual_functions_come_first_and_lose_it() -> None:
    of = host(L40S, "", on=False)
    got = requested(of, "equal-share,480Hz", "8Q")
    assert kinds(got) == [SetFunctions, SetScheduler, CreateVgpu]
    done(of, got)
    kept = host(L40S, "equal-share,2ms")
    off = asked(kept, replace(BARE, functions=False))
    assert kinds(off) == [SetFunctions]
    assert kept.virtual is not None
    few = replace(kept, virtual=replace(kept.virtual, functions=kept.virtual.functions[:2]))
    more = requested(few, None, "8Q", "8Q", "8Q")
    assert kinds(more)[:3] == [SetFunctions, SetFunctions, SetScheduler], "as before"
    after = done(few, more).virtual
    assert after is not None
    assert after.scheduler == "equal-share,2ms"
    empty = host(L40S, "", on=False)
    assert kinds(requested(empty, None, "8Q")) == [SetFunctions, CreateVgpu]
    assert kinds(requested(empty, "best-effort", "8Q")) == [SetFunctions, CreateVgpu]


def test_drift_names_both() -> None:
    of = host(A2, "best-effort", "4Q")
    (drift,) = verify(factory.node(of), requested(of, "equal-share,2ms", "4Q").desired)
    assert (drift.kind, drift.expected, drift.found) == ("scheduler", "equal-share,2ms", "best-effort")
    assert verify(factory.node(host(A2, "", "4Q")), requested(of, "equal-share", "4Q").desired) == ()


def test_the_way_back_has_it() -> None:
    of = host(A2, "equal-share,5ms", "4Q")
    after = done(of, requested(of, "fixed-share", "4Q"))
    (back,) = make_restore_point(factory.node(of), [of.pci]).gpus
    again = done(after, asked(after, back))
    assert again.virtual == of.virtual
    assert [v.key for v in again.vgpus] == [v.key for v in of.vgpus]


def test_fixed_share_and_mixed_sizes_exclude_each_other() -> None:
    of = host(L40S, "best-effort")
    got = blocker(requested(of, "fixed-share", "8Q", "16Q", mixed=True))
    assert (got.rule, "vGPUs of one size" in got.message) == ("SCHEDULER", True)
    stays = blocker(requested(host(L40S, "fixed-share"), None, "8Q", "16Q", mixed=True))
    assert stays.rule == "SCHEDULER"
    assert kinds(requested(of, "equal-share", "8Q", "16Q", mixed=True))[:2] == [SetScheduler, SetMixedSize]
    # Without a request for the mode, fixed share ends it.
    mixed = requested(host(L40S, "best-effort", mixed=True), "fixed-share", "8Q")
    assert kinds(mixed) == [SetMixedSize, SetScheduler, CreateVgpu]
    back = requested(host(L40S, "fixed-share"), "best-effort", "8Q", "16Q", mixed=True)
    assert kinds(back)[:2] == [SetScheduler, SetMixedSize], "mixed-size mode is refused under fixed share"


def test_the_model_refuses_what_the_driver_refuses() -> None:
    def refused(of: Gpu, action: SetScheduler | SetMixedSize) -> None:
        with pytest.raises(StepRefusedError):
            step(factory.node(of), action)

    fixed = SetScheduler(gpu=factory.PCI, reason="", scheduler="fixed-share")
    refused(host(L40S, "best-effort", "8Q"), fixed)
    refused(host(L40S, "best-effort", mixed=True), fixed)
    refused(host(L40S, "", on=False), fixed)
    refused(factory.gpu(H100, mig=True), fixed)
    refused(host(L40S, "fixed-share"), SetMixedSize(gpu=factory.PCI, reason="", on=True))


def test_mig_backed_vgpus_that_share_no_gpu_instance_have_none() -> None:
    got = blocker(requested(factory.gpu(H100), "equal-share", "1-10C"))
    assert (got.rule, "share no time" in got.message) == ("SCHEDULER", True)


def test_a_frame_rate_limit_needs_best_effort() -> None:
    limit = "frame_rate_limiter=1"
    got = blocker(requested(host(A2, "best-effort"), "equal-share", "4Q", parameters=limit))
    assert (got.rule, "frame-rate limiter" in got.message) == ("SCHEDULER", True)
    assert blocker(requested(host(A2, "fixed-share"), None, "4Q", parameters=limit)).rule == "SCHEDULER"
    assert requested(host(A2, "best-effort"), "best-effort", "4Q", parameters=limit).blockers == ()
    assert requested(host(A2, ""), None, "4Q", parameters=limit).blockers == ()
    assert requested(host(A2, "best-effort"), "equal-share", "4Q", parameters="frame_rate_limiter=0").blockers == ()


@pytest.mark.parametrize(
    ("driver", "scheduler", "words"),
    [
        ("470.256.02", "equal-share", "driver 470.256.02 cannot change the scheduler"),
        ("595.45.04", "equal-share,2ms", "write equal-share,500Hz"),
        ("595.45.04", "fixed-share,30ms", "write fixed-share,63Hz"),
        ("595.45.04", "equal-share,500Hz", ""),
        ("580.105.06", "equal-share,2ms", ""),
        ("", "equal-share,2ms", ""),
    ],
    ids=["no-call", "slice", "long-slice", "frequency", "before", "unknown"],
)
def test_drivers_that_cannot(driver: str, scheduler: str, words: str) -> None:
    of = host(A2, "best-effort")
    node = replace(factory.node(of), driver=driver)
    got = plan(node, Desired(gpus=(replace(BARE, vgpus=(), scheduler=scheduler),), name="x"))
    assert [b.rule for b in got.blockers] == (["SCHEDULER"] if words else [])
    assert words in "".join(b.message for b in got.blockers)


def test_idle_vgpus_stay_where_the_driver_does_not_report_a_scheduler() -> None:
    of = host(A2, "", "4Q")
    assert requested(of, "equal-share", "4Q").actions == (), "as verify, which sees no difference"
    assert kinds(requested(host(A2, ""), "equal-share")) == [SetScheduler]


def test_a_newer_driver_restores_the_nearest_scheduler() -> None:
    of = host(A2, "best-effort")
    node = replace(factory.node(of), driver="595.45.04")
    wanted = replace(BARE, functions=True, vgpus=factory.vgpus(A2, {"4Q": 1}), scheduler="equal-share,2ms")
    recorded = RecordedRequest(wanted, of.uuid)
    desired, failures = replay([recorded], node)
    got = plan(node, desired)
    assert (failures, got.blockers, kinds(got)) == ((), (), [SetScheduler, CreateVgpu])
    assert [n for n in got.notes if "equal-share,2ms" in n and "equal-share,500Hz" in n]
    after = node
    for action in got.actions:
        after = step(after, action)
    assert verify(after, desired) == ()
    unrelated = Desired((replace(BARE, vgpus=wanted.vgpus),), "later")
    (kept,) = merge_requests([recorded], unrelated, after)
    assert kept.desired.scheduler == "equal-share,500Hz"
    same, _ = replay([recorded], replace(node, driver="580.105.06"))
    assert (same.gpus[0].scheduler, same.notes) == ("equal-share,2ms", ())


@pytest.mark.parametrize("scheduler", ["even-share", "equal-share,2us", ""])
def test_a_recorded_scheduler_of_a_later_release_is_refused_and_kept(scheduler: str) -> None:
    of = host(A2, "best-effort")
    node = factory.node(of)
    wanted = replace(BARE, functions=True, scheduler=scheduler)
    recorded = RecordedRequest(wanted, of.uuid)
    desired, failures = replay([recorded], node)
    found = blocker(plan(node, desired))
    assert (failures, found.rule) == ((), "SCHEDULER")
    assert "this release cannot read the scheduler" in found.message
    other = Desired((replace(BARE, pci="0000:99:00.0"),), "later")
    assert recorded in merge_requests([recorded], other, node)
    undo = make_restore_point(factory.node(host(A2, scheduler or "even-share")), [of.pci])
    assert blocker(plan(node, undo)).rule == "SCHEDULER"
