"""Claims are prepared at exactly their placement, beside everything that must stay."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.core.model.claims import Claim
from aliquot.core.model.inventory import Holder
from aliquot.errors import AliquotError, BlockedError, HardwareError, LockedError
from aliquot.kubernetes.dra.agent.preparer import PATIENCE_S
from aliquot.kubernetes.dra.plugin.claim_service import PreparedClaim
from aliquot.kubernetes.dra.plugin.services import CLAIM_TIMEOUT_S
from unit.kubernetes.dra.agent.bench import Bench, claim, holders, run

SMALL = "gpu-0-mig-1g.5gb-4"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_claim_gets_exactly_its_placement(bench: Bench) -> None:
    found = run(bench.one(claim("train", SMALL, "gpu-0-mig-3g.20gb-0")))
    assert bench.gpus.instances() == ["1g.5gb@4", "3g.20gb@0"]
    uuid = bench.gpus.instance("1g.5gb@4").compute_instances[0].uuid
    first = found.devices[0]
    assert (first.requests, first.device, first.cdi_ids) == (("r0",), SMALL, (f"nvidia.com/gpu={uuid}",))
    assert holders(bench.gpus.instance("1g.5gb@4")) == ["claim team/train"]


def test_the_second_call_sends_nothing(bench: Bench) -> None:
    async def twice() -> None:
        first = await bench.one(claim("train", SMALL))
        calls, reads, requests = len(bench.gpus.calls), bench.gpus.reads, bench.cluster.reads
        assert await bench.one(claim("train", SMALL)) == first
        assert (len(bench.gpus.calls), bench.gpus.reads, bench.cluster.reads) == (calls, reads, requests)
        bench.restart()
        bench.cluster.unavailable = True
        assert await bench.one(claim("train", SMALL)) == first
        assert (len(bench.gpus.calls), bench.gpus.reads) == (calls, reads)

    run(twice())


def test_an_instance_stays_warm_until_its_room_is_needed(bench: Bench) -> None:
    async def story() -> None:
        await bench.one(claim("a", SMALL))
        await bench.unprepare(claim("a", SMALL))
        assert bench.gpus.instances() == ["1g.5gb@4"]
        assert not bench.gpus.instance("1g.5gb@4").held
        calls = len(bench.gpus.calls)
        await bench.one(claim("b", SMALL))
        assert len(bench.gpus.calls) == calls
        await bench.unprepare(claim("b", SMALL))
        await bench.one(claim("c", "gpu-0-mig-2g.10gb-0"))
        assert bench.gpus.instances() == ["1g.5gb@4", "2g.10gb@0"]
        await bench.one(claim("d", "gpu-0-mig-3g.20gb-4"))
        assert bench.gpus.instances() == ["2g.10gb@0", "3g.20gb@4"]

    run(story())


def test_a_foreign_instance_is_adopted_and_never_destroyed(bench: Bench) -> None:
    bench.gpus.node.cut("0", "1g.5gb*7")
    calls = len(bench.gpus.calls)
    run(bench.one(claim("a", SMALL)))
    assert len(bench.gpus.calls) == calls
    run(bench.unprepare(claim("a", SMALL)))
    refusal = run(bench.refused(claim("b", "gpu-0-mig-3g.20gb-4")))
    assert refusal.code == "FOREIGN_INSTANCE"
    assert "1g.5gb at 4:1" in refusal.brief
    assert "aliquot apply --gpu 0 --mig empty" in str(refusal.next_step)
    refusal = run(bench.refused(claim("b", "gpu-0")))
    assert refusal.code == "FOREIGN_INSTANCE"


@pytest.mark.parametrize("device", [SMALL, "gpu-0-mig-3g.20gb-4", "gpu-0"])
def test_a_held_place_is_refused_with_its_claim(bench: Bench, device: str) -> None:
    run(bench.one(claim("a", SMALL)))
    refusal = run(bench.refused(claim("b", device)))
    assert refusal.code == "HELD"
    assert "claim team/a" in refusal.brief
    assert "kubectl -n team describe resourceclaim a" in str(refusal.next_step)
    # the same name with another uid is another claim
    assert run(bench.refused(claim("a", device, uid="later"))).code == "HELD"


@pytest.mark.parametrize("device", [SMALL, "gpu-0-mig-7g.40gb-0"])
def test_what_a_process_or_job_holds_is_not_given(bench: Bench, device: str) -> None:
    run(bench.one(claim("a", SMALL)))
    run(bench.unprepare(claim("a", SMALL)))
    uuid = bench.gpus.instance("1g.5gb@4").compute_instances[0].uuid
    bench.gpus.claims.append(Claim(Holder("job", "slurm:7", "ann"), (uuid,)))
    refusal = run(bench.refused(claim("b", device)))
    assert refusal.code == "HELD"
    assert "job slurm:7 (ann)" in refusal.brief + str(refusal.next_step)


def test_a_whole_gpu_and_mig_mode(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mig=False)

    async def story() -> None:
        whole = await bench.one(claim("w", "gpu-0"))
        assert whole.devices[0].cdi_ids == (f"nvidia.com/gpu={bench.gpus.gpu().uuid}",)
        assert bench.gpus.calls == []
        assert "claim team/w" in (await bench.refused(claim("m", SMALL))).brief
        await bench.unprepare(claim("w", "gpu-0"))
        await bench.one(claim("m", SMALL))
        assert bench.gpus.gpu().mig.current == "enabled"
        assert "claim team/m" in (await bench.refused(claim("w", "gpu-0"))).brief
        await bench.unprepare(claim("m", SMALL))
        await bench.one(claim("w", "gpu-0"))
        assert bench.gpus.gpu().mig.current == "disabled"

    run(story())


def test_a_whole_gpu_of_a_pod_is_not_given_twice(tmp_path: Path) -> None:
    bench = Bench(tmp_path, mig=False)
    bench.gpus.claims.append(Claim(Holder("container", "docker:web"), (bench.gpus.gpu().uuid,)))
    assert "container docker:web" in run(bench.refused(claim("w", "gpu-0"))).brief


def test_two_claims_of_a_call_never_get_one_device(bench: Bench) -> None:
    first, second = run(bench.prepare(claim("a", SMALL), claim("b", "gpu-0-mig-3g.20gb-4")))
    assert isinstance(first, PreparedClaim)
    assert isinstance(second, BlockedError)
    assert (second.code, bench.gpus.instances()) == ("HELD", ["1g.5gb@4"])


def test_a_whole_gpu_and_a_part_of_it_are_refused(bench: Bench) -> None:
    assert "allocated at the same time" in run(bench.refused(claim("a", "gpu-0", SMALL))).brief


def test_admin_access_holds_nothing(bench: Bench) -> None:
    refusal = run(bench.refused(claim("watch", SMALL, shared=True)))
    assert refusal.code == "NO_CLAIMED_DEVICE"
    run(bench.one(claim("a", SMALL)))
    run(bench.one(claim("watch", SMALL, shared=True)))
    assert holders(bench.gpus.instance("1g.5gb@4")) == ["claim team/a"]
    run(bench.unprepare(claim("a", SMALL)))
    run(bench.one(claim("b", "gpu-0-mig-3g.20gb-4")))


@pytest.mark.parametrize(
    ("device", "text"),
    [("gpu-9", "has no GPU"), ("gpu-0-mig-1g.9gb-0", "no 1g.9gb"), ("gpu-0-mig-3g.20gb-1", "memory slice 1")],
)
def test_an_impossible_device_is_refused(bench: Bench, device: str, text: str) -> None:
    refusal = run(bench.refused(claim("odd", device)))
    assert refusal.code == "NO_CLAIMED_DEVICE"
    assert text in refusal.brief
    assert refusal.next_step


def test_a_claim_of_another_uid_is_refused(bench: Bench) -> None:
    found = run(bench.preparer.prepare([claim("gone", SMALL).reference]))
    assert found["uid-gone"].code == "CLAIM_MISMATCH"


def test_a_claim_with_another_allocation_is_prepared_for_it(bench: Bench) -> None:
    run(bench.one(claim("a", SMALL)))
    found = run(bench.one(claim("a", "gpu-0-mig-1g.5gb-0")))
    assert found.devices[0].device == "gpu-0-mig-1g.5gb-0"
    assert [d.device for c in bench.recorded().claims for d in c.devices] == ["gpu-0-mig-1g.5gb-0"]


def test_eight_claims_on_eight_gpus_take_the_time_of_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dgx-a100")
    pcis = [gpu.pci for gpu in bench.gpus.backend.read().gpus]
    bench.gpus.seconds = {pci: 1.0 + 0.5 * (n == 3) for n, pci in enumerate(pcis)}
    started = time.monotonic()
    found = run(bench.prepare(*(claim(f"c{n}", f"gpu-{n}-mig-3g.20gb-0") for n in range(8))))
    seconds = time.monotonic() - started
    assert all(isinstance(each, PreparedClaim) for each in found)
    assert seconds < 1.2 * 1.5, f"{seconds:.2f} s"


def test_calls_of_one_moment_are_planned_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dgx-a100")
    applied: list[float] = []
    bench.gpus.before_apply = lambda: applied.append(time.monotonic())

    async def calls() -> None:
        await asyncio.gather(*(bench.one(claim(f"c{n}", f"gpu-{n}-mig-3g.20gb-0")) for n in range(4)))

    run(calls())
    assert len(applied) == 1


def test_one_bad_gpu_fails_only_its_own_claims(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "dgx-a100")
    bench.gpus.fails = {bench.gpus.gpu(1).pci: HardwareError("the driver failed")}
    found = run(bench.prepare(*(claim(f"c{n}", f"gpu-{n}-mig-3g.20gb-0") for n in range(3))))
    assert [isinstance(each, PreparedClaim) for each in found] == [True, False, True]
    assert "the driver failed" in found[1].brief
    assert {c.name for c in bench.recorded().claims} == {"c0", "c2"}
    bench.gpus.fails = {}
    run(bench.one(claim("c1", "gpu-1-mig-3g.20gb-0")))


def test_a_node_that_changed_is_planned_again(bench: Bench) -> None:
    requests = ["4g.20gb"]

    def change() -> None:
        if requests:
            bench.gpus.node.cut("0", requests.pop())

    bench.gpus.before_apply = change
    run(bench.one(claim("a", SMALL)))
    assert bench.gpus.instances() == ["1g.5gb@4", "4g.20gb@0"]


def test_the_lock_of_another_program_is_waited_for(bench: Bench) -> None:
    class Busy:
        left = 3

        @contextmanager
        def hold(self) -> Any:
            Busy.left -= 1
            if Busy.left >= 0:
                raise LockedError("aliquot apply changes the GPUs")
            yield

    bench.gpus.lock = Busy()
    run(bench.one(claim("a", SMALL)))


def test_an_agent_that_stops_does_not_wait_for_another_program(bench: Bench) -> None:
    class Busy:
        @contextmanager
        def hold(self) -> Any:
            raise LockedError("aliquot apply changes the GPUs")
            yield

    bench.gpus.lock = Busy()

    async def story() -> None:
        waiting = asyncio.create_task(bench.prepare(claim("a", SMALL)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await bench.preparer.close()
        (found,) = await waiting
        assert isinstance(found, LockedError)
        assert bench.recorded().claims == ()

    run(story())


def test_an_instance_that_goes_before_the_answer_is_made_again(bench: Bench) -> None:
    # Another program destroys it between the change and the record.
    class Late:
        times = 0

        @contextmanager
        def hold(self) -> Any:
            Late.times += 1
            if Late.times == 2:  # the lock for the check, after the record
                made = bench.gpus.instance("1g.5gb@4")
                bench.gpus.node.backend.destroy_compute_instance(bench.gpus.gpu().pci, made.id, 0)
                bench.gpus.node.backend.destroy_gpu_instance(bench.gpus.gpu().pci, made.id)
            yield

    bench.gpus.lock = Late()
    run(bench.one(claim("a", SMALL)))
    assert bench.gpus.instances() == ["1g.5gb@4"]
    assert Late.times == 4


def test_an_instance_of_another_owner_after_a_reboot_is_not_taken_for_the_earlier_one(bench: Bench) -> None:
    run(bench.one(claim("a", "gpu-0-mig-2g.10gb-0")))
    run(bench.unprepare(claim("a", "gpu-0-mig-2g.10gb-0")))
    bench.gpus.reboot()
    bench.restart()
    bench.gpus.node.cut("0", "2g.10gb@0")
    refusal = run(bench.refused(claim("b", "gpu-0-mig-3g.20gb-0")))
    assert refusal.code == "FOREIGN_INSTANCE"
    assert bench.gpus.instances() == ["2g.10gb@0"]


def test_after_a_reboot_the_devices_are_created_before_the_answer(bench: Bench) -> None:
    async def story() -> None:
        await bench.one(claim("a", SMALL))
        await bench.one(claim("b", "gpu-0-mig-2g.10gb-0"))
        bench.gpus.reboot()
        assert bench.gpus.instances() == []
        bench.restart()
        bench.cluster.unavailable = True
        await bench.one(claim("a", SMALL))
        assert "1g.5gb@4" in bench.gpus.instances()
        await bench.preparer.restore()
        assert bench.gpus.instances() == ["1g.5gb@4", "2g.10gb@0"]
        assert holders(bench.gpus.instance("2g.10gb@0")) == ["claim team/b"]
        assert not bench.preparer.missing
        calls = len(bench.gpus.calls)
        await bench.preparer.restore()
        assert len(bench.gpus.calls) == calls

    run(story())


def test_a_claim_whose_gpu_is_lost_stays_recorded(bench: Bench) -> None:
    async def story() -> None:
        await bench.one(claim("a", SMALL))
        read = bench.gpus.backend.read
        lost = msgspec.structs.replace(bench.gpus.gpu(), lost=True, instances=())
        now = msgspec.structs.replace(read(), gpus=(lost,))
        bench.gpus.backend.read = lambda: now  # type: ignore[method-assign]
        await bench.preparer.restore()
        assert list(bench.preparer.missing) == ["uid-a"]
        assert "GPU" in bench.preparer.missing["uid-a"]
        refused = (await bench.prepare(claim("a", SMALL)))[0]
        assert isinstance(refused, AliquotError)
        assert refused.code == "GPU_LOST"
        bench.gpus.backend.read = read  # type: ignore[method-assign]
        await bench.preparer.restore()
        assert not bench.preparer.missing
        assert [c.name for c in bench.recorded().claims] == ["a"]

    run(story())


def test_a_refusal_that_names_the_lock_comes_before_the_timeout_of_the_call() -> None:
    assert PATIENCE_S < CLAIM_TIMEOUT_S
