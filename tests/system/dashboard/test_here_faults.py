"""Failures: nodes that vanish, killed servers, locks of other processes, and driver errors."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.engine.step_timing import RECORD, StepListener, TimedStep
from aliquot.core.model.plan import Plan
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu, Repair, SwitchFunctions
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview
from aliquot.errors import AliquotError, BlockedError, ConfigError, StorageError, UsageError
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from system.dashboard import heres
from system.dashboard.heres import HereBed
from system.dashboard.source_contract import ANN, BOB


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[str]:
    path = f"{tmp_path}/state"
    yield path
    control.stop(path)


@pytest.fixture(params=["one node", "all nodes"])
def bed(state_dir: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[HereBed]:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    with heres.bed(state_dir, fleet=request.param == "all nodes") as made:
        yield made


@pytest.fixture
def fleet(state_dir: str) -> Iterator[HereBed]:
    with heres.bed(state_dir, fleet=True) as made:
        yield made


@pytest.fixture
def single(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HereBed]:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    with heres.bed(state_dir) as made:
        yield made


def server_of(bed: HereBed) -> int:
    """Return the pid of the simulator's server."""
    return int(control._request(bed.state_dir, {"do": "ping"})["pid"])


def aliquot(bed: HereBed, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as another user would."""
    return forkserver.run(
        [sys.executable, "-m", "aliquot", *words, "--sim", bed.node],
        env={**os.environ, "ALIQUOT_STATE_DIR": bed.state_dir, "ALIQUOT_BACKEND": "direct"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# -- nodes that vanish and return


def test_a_killed_server_is_started_again_and_nothing_is_lost(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    os.kill(server_of(bed), signal.SIGKILL)
    assert bed.sim.set_mode(1, True) == 0
    bed.sim.create(1, "1g.10gb")
    bed.wait(lambda: len(bed.make_observation().inventory.gpus[1].instances) == 1, "what was made after the kill")  # type: ignore[union-attr]
    assert not bed.make_observation().stale
    assert bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"]


def test_a_stopped_node_is_marked_as_stale_and_keeps_what_was_seen(single: HereBed) -> None:
    single.execute(single.preview(single.good))
    seen = single.make_observation()
    control.stop(single.state_dir, single.node)
    single.wait(lambda: single.make_observation().stale, "that it is gone")
    assert single.make_observation().inventory == seen.inventory
    assert single.make_observation().observed_at <= seen.observed_at + 5
    assert "one" in single.make_observation().error
    assert single.make_observation().next_step
    found = single.preview(single.good)
    assert found.blocked
    assert found.obstacles[0].node == "one"
    control.start(single.state_dir, heres.TEMPLATE, single.node)
    single.wait(lambda: not single.make_observation().stale, "that it is back")
    assert single.profiles() == []


def test_an_apply_to_a_node_that_is_gone_is_refused(bed: HereBed) -> None:
    found = bed.preview(bed.good)
    control.stop(bed.state_dir, bed.node)
    done = bed.execute(found)
    assert done.status == "refused"
    assert "one" in done.sentence


def test_a_node_that_is_unavailable_blocks_what_is_asked_of_several(fleet: HereBed) -> None:
    control.start_many(fleet.state_dir, "a2:mdev", 2, "v")
    fleet.wait(lambda: {"v-01", "v-02"} <= set(fleet.source.fleet.by_name), "the new nodes")
    pci = fleet.make_observation("v-01").inventory.gpus[0].pci  # type: ignore[union-attr]
    ask = SwitchFunctions(gpus=(f"v-01/{pci}", f"v-02/{pci}"), on=True)
    assert fleet.preview(ask).changes
    Path(control.folder(fleet.state_dir, "v-02"), "nvml.sock").unlink()
    found = fleet.preview(ask)
    assert found.blocked
    assert not found.actions
    assert [o.node for o in found.obstacles] == ["v-02"]
    fleet.wait(lambda: True, "the loop still runs")


def test_what_one_of_several_cannot_do_none_of_them_does(fleet: HereBed) -> None:
    control.start(fleet.state_dir, "a2:mdev", "v")
    fleet.wait(lambda: "v" in fleet.source.fleet.by_name, "the new node")
    pci = fleet.make_observation("v").inventory.gpus[0].pci  # type: ignore[union-attr]
    found = fleet.preview(SwitchFunctions(gpus=(f"v/{pci}", f"one/{fleet.gpu}"), on=True))
    assert [o.node for o in found.obstacles] == ["one"]
    assert fleet.execute(found).status == "refused"
    assert fleet.make_observation("v").inventory.gpus[0].virtual.functions == ()  # type: ignore[union-attr]
    assert not any(call.get("write") for call in SimClient(fleet.state_dir, "v").calls())


def test_nodes_of_a_fleet_come_and_go(fleet: HereBed) -> None:
    names = control.start_many(fleet.state_dir, "a30", 3, "more")
    assert names == ["more-01", "more-02", "more-03"]
    fleet.wait(lambda: {"one", *names} <= set(fleet.source.fleet.by_name), "the new nodes")
    fleet.wait(lambda: all(observation.inventory for observation in fleet.source.fleet.nodes), "what they have")
    control.stop(fleet.state_dir, "more-02")
    fleet.wait(lambda: "more-02" not in fleet.source.fleet.by_name, "that one is gone")
    control.stop(fleet.state_dir)
    fleet.wait(lambda: not fleet.source.fleet.nodes, "that all are gone")
    assert fleet.source.fleet.ready
    assert not fleet.source.fleet.error
    control.start(fleet.state_dir, "a30", "last")
    fleet.wait(lambda: "last" in fleet.source.fleet.by_name, "a node after all were gone")


def test_looking_at_no_nodes_starts_no_server(tmp_path: Path) -> None:
    state_dir = f"{tmp_path}/empty"
    assert control.changes(state_dir, "", 0.1) is None
    assert not os.path.exists(state_dir)


def test_of_many_nodes_only_those_that_changed_are_read(fleet: HereBed) -> None:
    names = control.start_many(fleet.state_dir, "a30*2", 40, "crowd")
    fleet.wait(lambda: set(names) <= set(fleet.source.fleet.by_name), "all of them")
    nodes = {name: SimClient(fleet.state_dir, name) for name in names}
    before = {name: len(node.calls()) for name, node in nodes.items()}
    nodes["crowd-07"].hold(1)
    fleet.wait(lambda: bool(fleet.make_observation("crowd-07").inventory.gpus[1].holders), "the process")  # type: ignore[union-attr]
    read = {name for name, node in nodes.items() if len(node.calls()) != before[name]}
    assert read == {"crowd-07"}


def test_a_driver_that_is_gone_is_a_failure_with_a_next_step(bed: HereBed) -> None:
    bed.sim.inject_fault("lost", gpu=0)
    bed.wait(lambda: bed.make_observation().inventory.gpus[0].lost, "the GPU that fell off the bus")  # type: ignore[union-attr]
    found = bed.preview(bed.good)
    assert found.blocked
    assert found.obstacles[0].rule == "GPU_LOST"


# -- other processes


def test_a_held_lock_is_shown_and_refuses_naming_its_holder(bed: HereBed) -> None:
    found = bed.preview(bed.good)
    script = (
        "import sys, time; from aliquot.foundation.lock import FileLock\n"
        "with FileLock(sys.argv[1]).hold():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    lock = os.path.join(control.folder(bed.state_dir, bed.node), "lock")
    other = subprocess.Popen(
        [sys.executable, "-c", script, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        before = bed.changes()
        done = bed.execute(found)
        assert (done.status, done.code) == ("refused", "LOCKED")
        assert str(other.pid) in done.sentence
        assert bed.changes() == before
        bed.wait(lambda: str(other.pid) in bed.make_observation().changing, "who is at it")
    finally:
        other.communicate()
    bed.wait(lambda: not bed.make_observation().changing, "the end of the change")
    assert bed.execute(found).status == "done"


def test_what_the_command_line_does_is_shown_with_its_request(bed: HereBed) -> None:
    done = aliquot(bed, "apply", "--gpu", "0", "--mig", "3g.40gb,1g.10gb*2")
    assert done.returncode == 0, done.stderr
    bed.wait(lambda: bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"], "what was made")
    bed.wait(lambda: bed.make_observation().desired == "the record", "what was asked")
    bed.wait(lambda: not bed.make_observation().changing, "that the command is over")
    assert bed.make_observation().drift == ()


def test_two_applies_at_once_and_one_of_them_is_done(bed: HereBed) -> None:
    first, second = bed.preview(bed.good, ANN), bed.preview(bed.other, BOB)

    async def both() -> list[ChangeOutcome]:
        return list(
            await asyncio.gather(
                bed.source.execute(first, ANN, bed.reported.append),
                bed.source.execute(second, BOB, bed.reported.append),
            )
        )

    ends = bed.loop.run(both())
    assert sorted(done.status for done in ends) == ["done", "refused"]
    assert next(done.code for done in ends if done.status == "refused") in ("LOCKED", "MOVED")
    bed.wait(lambda: len(bed.profiles()) == 3, "one of both")
    assert bed.profiles() in (["1g.10gb", "1g.10gb", "3g.40gb"], ["2g.20gb"] * 3)


def test_an_outdated_preview_touches_nothing(bed: HereBed) -> None:
    found = bed.preview(bed.good)
    bed.sim.create(0, "1g.10gb")
    before = bed.changes()
    done = bed.execute(found)
    assert (done.status, done.code) == ("refused", "MOVED")
    assert bed.changes() == before


def test_a_holder_that_came_meanwhile_is_not_destroyed(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    found = bed.preview(bed.other)
    assert any(act.verb == "destroy" for act in found.actions)
    inventory = bed.make_observation().inventory
    assert inventory is not None
    victim = next(i.id for i in inventory.gpus[0].instances if i.profile == "3g.40gb")
    bed.sim.hold(0, victim)
    done = bed.execute(found)
    assert done.status in ("undone", "refused"), done
    assert done.code in ("HELD", "IN_USE")
    bed.wait(lambda: bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"], "that all is as before")


# -- failures and invalid requests


def test_a_driver_that_fails_half_way_is_undone_and_reported(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    bed.sim.inject_fault("fail", call="GpuInstanceCreateComputeInstance", code=999, nth=2, calls=1)
    done = bed.execute(bed.preview(bed.other))
    assert done.status == "undone", done
    assert done.code == "HARDWARE"
    assert any("is back" in line for line in done.details)
    assert bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"]
    last = bed.loop.run(bed.source.history(bed.node))[0]
    assert (last.outcome, last.by) == ("undone", "ann")
    assert any(line.startswith("reverted: ") for line in last.actions)
    assert "failed" in last.sentence


def test_notes_of_an_earlier_run_are_no_beginning(bed: HereBed, monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(
        self: NodeAccess, plan: Plan, by: str, report: Callable[[str], None], watch: StepListener
    ) -> ApplyOutcome:
        report("a run that was cut off is taken back")
        watch(TimedStep(RECORD, 0.1, code="STORAGE"))
        raise StorageError("the disk is full")

    monkeypatch.setattr(NodeAccess, "apply", apply)
    done = bed.execute(bed.preview(bed.good))
    assert (done.status, done.sentence) == ("refused", "Nothing was changed: the disk is full")


def test_what_cannot_be_undone_is_reported_to_differ(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    bed.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999)
    done = bed.execute(bed.preview(bed.other))
    assert done.status == "partial"
    assert any("differs from the previous state" in line for line in done.details)
    bed.sim.inject_fault("none")
    bed.wait(lambda: bool(bed.make_observation().drift), "how it differs from what was asked")
    repaired = bed.preview(Repair(node=bed.node))
    assert repaired.changes
    assert bed.execute(repaired).status == "done"
    bed.wait(lambda: bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"], "what was asked")
    bed.wait(lambda: not bed.make_observation().drift, "no drift")


def test_held_instances_block_and_their_holders_are_named(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    pid = bed.sim.hold(0, int(bed.sim.show()["gpus"][0]["instances"][0]["id"]))
    found = bed.preview(bed.other)
    assert found.blocked
    obstacle = next(o for o in found.obstacles if o.rule == "HELD")
    assert any(str(pid) in holder for holder in obstacle.holders)
    assert obstacle.next_step
    assert "--sim one" in obstacle.next_step or not obstacle.next_step.startswith("aliquot")
    forced = bed.preview(msgspec.structs.replace(bed.other, policy="force"))
    assert forced.changes
    assert any("processes on them fail" in line for line in forced.warnings)


def test_room_is_made_by_moving_what_is_idle_and_by_nothing_else(bed: HereBed) -> None:
    for start in (0, 2, 5):
        bed.sim.create(0, "1g.10gb", start)
    room = FitInstance(node=bed.node, gpu=bed.gpu, profile="3g.40gb")
    found = bed.preview(room)
    assert found.changes, found.obstacles
    held = int(bed.sim.show()["gpus"][0]["instances"][0]["id"])
    bed.sim.hold(0, held)
    kept = bed.preview(room)
    assert kept.changes, kept.obstacles
    assert all("at 0:1" not in act.what for act in kept.actions if act.verb == "destroy")
    assert bed.execute(kept).status == "done"
    bed.wait(lambda: bed.profiles() == ["1g.10gb"] * 3 + ["3g.40gb"], "one more, and nothing less")


def test_room_is_never_made_by_moving_what_is_held_not_even_by_force(bed: HereBed) -> None:
    for start in (2, 5):
        bed.sim.hold(0, bed.sim.create(0, "1g.10gb", start))
    found = bed.preview(FitInstance(node=bed.node, gpu=bed.gpu, profile="3g.40gb", policy="force"))
    assert found.blocked
    assert not found.actions


def test_where_moving_does_not_help_what_would_is_offered(bed: HereBed) -> None:
    bed.execute(bed.preview(bed.good))
    found = bed.preview(FitInstance(node=bed.node, gpu=bed.gpu, profile="4g.40gb"))
    assert found.blocked
    other = found.obstacles[-1]
    assert other.rule == "WOULD_COST"
    assert "1g.10gb at 0:1 and 1g.10gb at 1:1" in other.message
    instead = bed.preview(PartitionGpu(node=bed.node, gpu=bed.gpu, mig=other.suggestion))
    assert instead.changes
    assert bed.execute(instead).status == "done"
    bed.wait(lambda: "4g.40gb" in bed.profiles(), "what was offered")


@pytest.mark.parametrize(
    ("mig", "error"),
    [("", ConfigError), ("9g.900gb", ConfigError), ("1g.10gb*0", ConfigError), ("'; rm -rf /", ConfigError)],
)
def test_nonsense_is_wrong_everywhere_and_says_where(single: HereBed, mig: str, error: type[AliquotError]) -> None:
    with pytest.raises(error) as caught:
        single.preview(single.cut(mig))
    assert "--" not in caught.value.brief, "options belong to the command line"


def test_a_policy_that_there_is_not_and_a_gpu_that_is_gone(single: HereBed) -> None:
    with pytest.raises(UsageError):
        single.preview(single.cut("empty", policy="whatever"))
    gone = single.preview(PartitionGpu(node=single.node, gpu="0000:ff:00.0", mig="empty"))
    assert gone.obstacles[0].rule == "NO_SUCH_GPU"
    with pytest.raises(BlockedError):
        single.preview(PartitionGpu(node="two", gpu=single.gpu, mig="empty"))


def test_nothing_was_requested_and_there_is_nothing_to_go_back_to(single: HereBed) -> None:
    with pytest.raises(ConfigError, match="no requested state is recorded"):
        single.preview(Repair(node=single.node))


def test_a_named_config_of_a_file_is_used(state_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aliquot.dashboard.change_requests import UseConfig

    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    path = tmp_path / "gpus.yaml"
    path.write_text("version: aliquot/v1\nconfigs:\n  train:\n    - gpus: {index: [0]}\n      mig: {3g.40gb: 2}\n")
    with heres.bed(state_dir, config_file=str(path)) as bed:
        assert bed.source.configs == ("train",)
        found = bed.preview(UseConfig(nodes=(bed.node,), config="train"))
        assert isinstance(found, ChangePreview)
        assert bed.execute(found).status == "done"
        bed.wait(lambda: bed.make_observation().desired == "train", "the config that was asked")
        with pytest.raises(ConfigError):
            bed.preview(UseConfig(nodes=(bed.node,), config="other"))
        bed.sim.destroy(0, int(bed.sim.show()["gpus"][0]["instances"][0]["id"]))
        bed.wait(lambda: bool(bed.make_observation().drift), "the drift")
        assert "3g.40gb" in bed.make_observation().drift[0].message


def test_what_the_pieces_are_used_for_is_shown(bed: HereBed) -> None:
    """A fleet has usage data too. Nothing that the driver reports is shown as not measured."""
    assert bed.execute(bed.preview(bed.good)).status == "done"
    instance = next(i for i in bed.sim.show()["gpus"][0]["instances"] if i["profile"] == "3g.40gb")["id"]
    bed.sim.hold(0, instance, memory=3000)

    def used() -> int:
        return max((u.memory_used_mib or 0 for u in bed.make_observation().usage if u.instance == instance), default=0)

    bed.wait(lambda: used() >= 3000, "the memory that it uses")
    assert all(u.memory_total_mib for u in bed.make_observation().usage)
