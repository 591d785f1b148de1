"""Interference by other users during a change, full disks, and other resources of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.core.model.inventory import Holder
from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError, StorageError
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.errors import BusyError, RefusedError, SlurmUnavailableError
from aliquot.slurm.client.models import SlurmJob, SlurmReservation
from aliquot.slurm.node import gpu_plan as planned
from aliquot.slurm.node import transaction as apply
from aliquot.slurm.node.change_record import ChangeRecordFile
from aliquot.slurm.node.conflicts import refuse_conflicts
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import agrees, expected_gres
from aliquot.slurm.node.request import SlurmChange
from support.factory import inventory, with_instances
from support.slurmfake import Host

SEVEN, HALVES = "1g.5gb*7", "3g.20gb*2"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a dynamic node of two GPUs with seven slices each, idle."""
    made = Host(tmp_path, monkeypatch)
    assert made.apply("0-1", SEVEN).status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    return made


def drained(host: Host, reason: str = "new fans") -> None:
    host.cluster.drain("n1", reason)


@pytest.mark.parametrize("step", ["wait", "stop", "gpus", "files", "forget"])
def test_who_drains_the_node_while_it_changes_keeps_it_drained(host: Host, step: str) -> None:
    host.at(step, lambda: drained(host))
    assert host.apply("0", HALVES).status == "done"
    assert host.now.draining
    assert host.now.reason == "new fans"


def test_the_jobs_of_a_node_are_asked_for_once_while_it_says_that_none_has_come(host: Host) -> None:
    # slurmctld searches its whole queue for each such request.
    host.cluster.change("n1", last_busy=1000)
    host.cluster.calls.clear()
    assert host.apply("0", HALVES).status == "done"
    assert [call for call in host.cluster.calls if call.startswith("queue")] == ["queue n1"]


def test_a_slurm_that_does_not_say_when_a_node_was_busy_is_asked_before_each_step(host: Host) -> None:
    # The checks are at the beginning, while the change waits for jobs, and before each step that would end a job. When
    # slurmd starts, Slurm has no record of the node.
    host.cluster.calls.clear()
    assert host.apply("0", HALVES).status == "done"
    guarded = ("stop", "gpus", "files", "forget")
    assert [call for call in host.cluster.calls if call.startswith("queue")] == ["queue n1"] * (1 + 1 + len(guarded))


@pytest.mark.parametrize(
    ("what", "state"),
    [({"last_busy": 1001}, "SUSPENDED"), ({"states": frozenset({"MIXED", "DRAIN", "DYNAMIC_NORM"})}, "RUNNING")],
)
def test_a_job_that_came_meanwhile_is_waited_for(host: Host, what: dict[str, object], state: str) -> None:
    # Another user let the node accept jobs for a moment.
    host.cluster.change("n1", last_busy=1000)
    cut: list[bool] = []

    def comes() -> None:
        host.cluster.queue = [SlurmJob(7, state, user="ann", nodes=("n1",))]
        host.cluster.change("n1", **what)
        host.cluster.before = lambda call: goes() if call.startswith("look") and len(host.cluster.calls) > 30 else None

    def goes() -> None:
        cut.append(host.node.backend.read().gpus[0].instances[0].profile != "1g.5gb")
        host.cluster.queue = []
        host.cluster.before = lambda call: None
        host.cluster.change("n1", last_busy=1002, states=host.now.states - {"MIXED"})

    host.at("stop", comes)
    host.cluster.calls.clear()
    assert host.apply("0", HALVES, jobs="wait").status == "done"
    assert [line for line in host.messages if "job 7" in line]
    assert cut == [False]


@pytest.mark.parametrize("step", ["start", "verify", "resume"])
def test_who_drains_the_new_record_keeps_it_drained(host: Host, step: str) -> None:
    host.at(step, lambda: drained(host) if step != "start" else None)
    if step == "start":
        host.at(step, lambda: drained(host), after=True)
    assert host.apply("0", HALVES).drained
    assert host.now.reason == "new fans"


def test_the_way_back_keeps_the_words_of_who_drained_it_meanwhile(host: Host) -> None:
    def fails() -> None:
        drained(host)
        raise BlockedError("no")

    host.at("files", fails)
    assert host.apply("0", HALVES).status == "undone"
    assert host.now.reason == "new fans"


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
@pytest.mark.parametrize("step", ["gpus", "files", "forget", "start"])
def test_an_error_that_is_not_ours_goes_back_as_well(host: Host, step: str, error: Exception) -> None:
    failed: list[str] = []

    def fails() -> None:
        if not failed:
            failed.append(step)
            raise error

    host.at(step, fails)
    outcome = host.apply("0", HALVES)
    assert (outcome.status, outcome.exit_code) == ("undone", 1)
    assert f"internal error: {type(error).__name__}" in outcome.why
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    assert (record.status, record.why) == ("undone", outcome.why)


def test_an_error_that_is_not_ours_on_the_way_back_stays_on_record(host: Host) -> None:
    def refuses() -> None:
        raise BlockedError("no")

    def fails() -> None:
        raise RuntimeError("oh")

    host.at("files", fails)
    host.at("files", refuses)
    with pytest.raises(AliquotError, match="internal error: RuntimeError: oh") as raised:
        host.apply("0", HALVES)
    assert any("on record" in line for line in raised.value.details)
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    assert record.status == "open"
    assert host.now.draining


def test_what_an_operator_gave_the_record_is_there_afterwards(host: Host) -> None:
    host.cluster.change("n1", features=("mig", "rack7"), weight=7, comment="ours", extra="row 3")
    host.cluster.members["extra"] = {"n1"}
    host.apply("0", HALVES)
    now = host.now
    assert (now.features, now.weight, now.comment, now.extra) == (("mig", "rack7"), 7, "ours", "row 3")
    assert now.partitions == ("all", "extra")


def test_gres_that_are_no_gpus_stay(host: Host) -> None:
    host.cluster.change("n1", gres=(*host.now.gres, *grestext.parse_listed("nic:ib:2,shard:8")))
    host.apply("0", HALVES)
    text = ",".join(map(str, host.now.gres))
    assert text.endswith("nic:ib:2,shard:8")
    assert "gpu:a100_3g.20gb:2" in text


def test_a_reservation_is_refused_before_anything_is_touched(host: Host) -> None:
    host.cluster.reserved = [SlurmReservation("friday", ("n0", "n1"))]
    with pytest.raises(BusyError, match="friday") as caught:
        host.apply("0", HALVES)
    assert caught.value.next_step == "scontrol update reservationname=friday nodes=n0", "it remains for the other node"
    assert not host.now.draining
    host.cluster.reserved = [SlurmReservation("friday", ("n1",))]
    with pytest.raises(BusyError, match="friday") as caught:
        host.apply("0", HALVES)
    assert caught.value.next_step == "scontrol delete reservationname=friday"


def test_a_reservation_that_is_made_meanwhile_is_not_lost(host: Host) -> None:
    host.at("files", lambda: host.cluster.reserved.append(SlurmReservation("friday", ("n1",))))
    deletes = host.cluster.calls.count("delete n1")
    assert host.apply("0", HALVES).status == "undone"
    assert host.cluster.calls.count("delete n1") == deletes


def test_a_requested_reboot_comes_first(host: Host) -> None:
    host.cluster.change("n1", states=host.now.states | {"REBOOT_REQUESTED"})
    with pytest.raises(BlockedError, match="reboot"):
        host.apply("0", HALVES)


def second(host: Host, *gpus: int, **more: object) -> None:
    """Add another node of the same host."""
    found = host.node.backend.read().gpus
    settings = replace(host.settings, name="n1-b", gpus=tuple(found[n].pci for n in gpus), **more)
    host.slurmd.name = host.name = "n1-b"
    host.apply(",".join(map(str, gpus)) or "0", SEVEN, settings)


def test_a_gpu_that_another_node_of_the_host_offers_is_not_offered_twice(host: Host) -> None:
    with pytest.raises(BlockedError, match="n1 already offers") as caught:
        second(host, 1)
    assert caught.value.next_step == "aliquot slurm apply --node-name n1"
    context, pcis = host.context, [gpu.pci for gpu in host.node.backend.read().gpus]
    context.command = ("aliquot", "slurm", "apply", "--mig", "7g.40gb*1")
    with pytest.raises(BlockedError, match="n1 already offers") as caught:
        refuse_conflicts(host.settings, "dynamic", None, pcis, context)
    assert caught.value.next_step == "aliquot slurm apply --mig '7g.40gb*1' --node-name n1"
    assert "n1-b" not in host.cluster.records
    del host.cluster.records["n1"]
    second(host, 1)
    assert "n1-b" in host.cluster.records


def test_two_nodes_of_a_host_do_not_share_a_slurmd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, monkeypatch)
    found = host.node.backend.read().gpus
    unit = replace(host.settings, gpus=(found[0].pci,), start="", stop="", options_file=str(tmp_path / "a"))
    host.apply("0", SEVEN, unit)
    with pytest.raises(BlockedError, match="n1 already offers") as caught:
        second(host, start="", stop="", unit="other")
    assert caught.value.next_step == f"aliquot slurm apply --node-name n1-b --capacity {found[1].pci}"
    with pytest.raises(BlockedError, match="slurmd of n1") as caught:
        second(host, 1, start="", stop="")
    assert "--slurmd-unit" in (caught.value.next_step or "")
    with pytest.raises(BlockedError, match="needs its own file"):
        second(host, 1, start="", stop="", unit="slurmd@b", options_file=str(tmp_path / "a"))


def test_no_job_is_requeued_for_a_change_that_another_job_prevents() -> None:
    job, stray = Holder("job", "slurm:7"), Holder("process", "1", "dcgm")
    gpus = with_instances(inventory("a100-sxm4-40gb"), 0, "3g.20gb@0", "3g.20gb@4")

    def holding(*holders: Holder) -> bool:
        first, *rest = gpus.gpus[0].instances
        held = replace(first, held=True, holders=holders)
        found = replace(gpus, gpus=(replace(gpus.gpus[0], instances=(held, *rest)),))
        return planned.freed(found, (7,)).gpus[0].instances[0].held

    assert not holding(job)
    assert holding(job, stray)
    assert holding(Holder("job", "slurm:8"))


def test_another_change_of_the_host_is_waited_for(host: Host) -> None:
    host.turns.busy = 3
    assert host.apply("0", HALVES).status == "done"
    assert any("waiting for another change" in line for line in host.messages)


def test_gpus_that_changed_meanwhile_are_not_a_success(host: Host) -> None:
    def other() -> None:
        host.node.cut("1", HALVES)

    host.at("start", other)
    outcome = host.apply("0", HALVES)
    assert outcome.drained
    assert outcome.status == "undone"


class FullDisk:
    """A record file that refuses writes from the n-th on."""

    def __init__(self, context: SlurmChangeContext, writes: int) -> None:
        self._file = ChangeRecordFile(context.folders.lib, "n1")
        self.left = writes
        self.read = self._file.read

    def write(self, record: object) -> None:
        self.left -= 1
        if self.left < 0:
            raise StorageError("no space left on device")
        self._file.write(record)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_moment_leaves_no_lie(host: Host) -> None:
    for writes in range(25):
        context = host.context
        context.file = FullDisk(context, writes)  # type: ignore[assignment]
        request = HALVES if writes % 2 == 0 else SEVEN
        change = SlurmChange(host.settings, host.node.desired_state("0", request))
        try:
            outcome = apply.apply(change, context)
        except AliquotError:
            pass
        else:
            assert outcome.status in ("done", "undone", "nothing")
        if not host.now.draining:
            made = expected_gres(host.node.backend.read(), host.settings, "24.11.5")
            assert agrees(host.now, made.gres), writes
        Path(host.context.file.path).unlink(missing_ok=True)
        if host.now.draining:
            host.cluster.resume("n1")
        host.apply("0-1", SEVEN)
        host.cluster.change("n1", slurmd_start=1000)


def test_slurmctld_that_is_restarted_while_jobs_are_waited_for(host: Host) -> None:
    host.cluster.queue = [SlurmJob(7, "RUNNING", nodes=("n1",))]
    observations: list[int] = []

    def unavailable(call: str) -> None:
        observations.append(len(observations))
        if 10 < len(observations) < 20:
            raise SlurmUnavailableError("slurmctld does not answer")
        if len(observations) > 25:
            host.cluster.queue = []

    host.cluster.before = unavailable
    assert host.apply("0", HALVES, jobs="wait", timeout_s=600.0).status == "done"


@pytest.mark.parametrize("dead", [False, True])
def test_a_node_whose_slurmd_cannot_be_stopped_is_resumed_only_if_it_answers(
    host: Host, monkeypatch: pytest.MonkeyPatch, dead: bool
) -> None:
    # A failed command that ends slurmd leaves a node on which no job could run.
    resume = host.cluster.resume

    def unsure(name: str) -> None:
        """Mark the node as both releases do: it gets no job before its slurmd has answered a ping."""
        resume(name)
        host.cluster.change(name, states=host.now.states | {"NOT_RESPONDING"})
        host.cluster.before = lambda call: answers() if not dead and len(host.cluster.calls) > 20 else None

    def answers() -> None:
        host.cluster.records["n1"] = replace(host.cluster.records["n1"], states=frozenset({"IDLE", "DYNAMIC_NORM"}))

    def fails() -> None:
        raise BlockedError("--slurmd-stop ended with status 1")

    monkeypatch.setattr(host.cluster, "resume", unsure)
    monkeypatch.setattr(host.slurmd, "stop", fails)
    host.cluster.calls.clear()
    host.messages.clear()
    with pytest.raises(BlockedError, match="--slurmd-stop"):
        host.apply("0", HALVES)
    assert host.now.draining is dead
    assert ("n1 takes jobs again" in host.messages) is not dead
    assert [line for line in host.messages if "its slurmd does not answer" in line] == (
        host.messages[-1:] if dead else []
    )
    assert host.now.reason.startswith("aliquot: slurmd does not answer; --slurmd-stop ended" if dead else "aliquot: ")


def test_what_never_was_registered_need_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, monkeypatch)
    host.slurmd.works = False
    begun = host.node.clock.now()
    outcome = host.apply("0", SEVEN)
    assert outcome.status == "undone"
    assert host.slurmd.log.count("stop") == 3
    assert host.node.clock.now() - begun < 100
    assert not host.node.backend.read().gpus[0].instances


def test_a_node_that_is_down_again_after_each_resume_is_given_up(host: Host) -> None:
    resume = host.cluster.resume

    def down(name: str) -> None:
        resume(name)
        host.cluster.change(name, states=host.now.states | {"DOWN"}, reason="Not responding")

    host.cluster.resume = down  # type: ignore[method-assign]
    outcome = host.apply("0", HALVES)
    assert outcome.status == "undone"


def test_a_node_that_takes_jobs_says_nothing_of_a_change_that_is_over(host: Host) -> None:
    host.apply("0", HALVES, revision="halves")
    assert not host.now.draining
    assert host.now.reason == "aliquot: was changed to halves, takes jobs"


def test_lines_name_the_device_nodes_that_were_made(host: Host) -> None:
    elsewhere = replace(host.settings, dev_root=str(host.folder / "machine"))
    host.apply("0", HALVES, elsewhere)
    text = (host.folder / "etc" / "gres.conf").read_text()
    assert f"={host.folder}/machine/dev/nvidia0," in text
    assert "=/dev/" not in text


def test_a_slurmd_that_cannot_be_started_is_known_before_the_node_is_drained(host: Host) -> None:
    host.slurmd.absent = "cannot restart slurmd: this host does not run systemd"
    before = list(host.cluster.calls)
    with pytest.raises(BlockedError, match="does not run systemd"):
        host.apply("0", HALVES)
    assert "drain n1" not in host.cluster.calls[len(before) :]
    assert host.apply("0-1", SEVEN).status == "nothing"


def test_a_failure_is_reported_with_its_last_words(host: Host) -> None:
    def fails() -> None:
        raise BlockedError("--slurmd-start ended with status 1", details=("slurmd: no such plugin",))

    host.at("start", fails)
    assert host.apply("0", HALVES).status == "undone"
    assert "  slurmd: no such plugin" in host.messages


def test_a_change_that_is_refused_after_draining_leaves_its_reason_to_the_error(host: Host) -> None:
    def refuses() -> None:
        raise BusyError("n1 cannot be changed now: job 7 came", details=("job 7 of bob",), next_step="squeue")

    host.at("wait", refuses)
    with pytest.raises(BusyError, match="job 7 came") as refused:
        host.apply("0", HALVES)
    assert refused.value.details == ("job 7 of bob",)
    assert not [line for line in host.messages if "job 7" in line], "the error is printed once, at the end"
    assert host.messages[-2:] == ["n1: nothing was changed", "n1 takes jobs again"]


def test_an_undo_that_fails_keeps_the_reason_for_the_undo(host: Host) -> None:
    def fails() -> None:
        raise BlockedError("the first reason")

    def fails_again() -> None:
        raise BlockedError("the second reason")

    host.at("files", fails_again)
    host.at("files", fails)
    with pytest.raises(BlockedError, match="the second reason") as stopped:
        host.apply("0", HALVES)
    assert "It was being undone because: the first reason" in stopped.value.details


def test_a_change_that_stands_still_says_what_may_help_as_well(host: Host) -> None:
    def fails() -> None:
        raise SlurmUnavailableError("slurmctld does not answer", next_step="scontrol ping")

    host.at("forget", fails)
    with pytest.raises(SlurmUnavailableError) as caught:
        host.apply("0", HALVES)
    assert "This may help: scontrol ping" in caught.value.details
    assert "--continue" in (caught.value.next_step or "")


def test_a_node_that_an_admin_drains_between_two_tries_is_not_resumed(host: Host) -> None:
    resume, tries = host.cluster.resume, [0]

    def not_yet(name: str) -> None:
        tries[0] += 1
        if tries[0] == 1:
            drained(host)
            raise RefusedError("not registered yet")
        resume(name)

    host.cluster.resume = not_yet  # type: ignore[method-assign]
    outcome = host.apply("0", HALVES)
    assert (tries[0], outcome.drained, host.now.reason) == (1, True, "new fans")


def test_a_command_that_fails_is_typed_again(host: Host) -> None:
    def fails() -> None:
        raise SlurmUnavailableError("slurmctld does not answer")

    host.at("forget", fails)
    with pytest.raises(SlurmUnavailableError):
        host.apply("0", HALVES)
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    typed = replace(record.change.settings, push="another")
    assert apply.continue_change(host.context, typed).status == "done"
    after = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert after is not None
    assert after.change.settings.push == "another"


def test_a_type_that_is_gone_from_the_cluster_is_reported(host: Host) -> None:
    # Slurm holds the jobs that request it. They are not searched, because the queue may be long.
    host.cluster.calls.clear()
    notes = host.apply("0-1", HALVES).notes
    assert [note.partition(":")[0] for note in notes if note.startswith("no node has")] == [
        "no node has a100_1g.5gb now"
    ]
    assert "queue" not in host.cluster.calls
    assert not [note for note in host.apply("0", "1g.5gb*7").notes if note.startswith("no node has")]


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a static node whose first quiet step is that of the GPUs, because slurmd keeps running."""
    made = Host(tmp_path, monkeypatch)
    made.static("gpu:a100:2")
    assert made.apply("0-1", SEVEN).status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    made.cluster.calls.clear()
    return made


def test_a_failure_after_the_first_step_that_changes_something_is_undone_and_the_node_stays_drained(
    static: Host,
) -> None:
    def fails() -> None:
        raise BlockedError("no")

    static.at("gpus", fails, after=True)
    outcome = static.apply("0", HALVES)
    assert outcome.status == "undone"
    assert outcome.drained
    assert [i.profile for i in static.node.backend.read().gpus[0].instances] == ["1g.5gb"] * 7


def test_a_signal_in_the_first_step_that_changes_something_does_not_let_jobs_in(static: Host) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    static.at("gpus", stopped, after=True)
    with pytest.raises(ApplyInterruptedError):
        static.apply("0", HALVES)
    assert static.now.draining
    undone = apply.undo_change(static.context)
    assert (undone.status, undone.drained) == ("undone", True)
    assert [i.profile for i in static.node.backend.read().gpus[0].instances] == ["1g.5gb"] * 7
