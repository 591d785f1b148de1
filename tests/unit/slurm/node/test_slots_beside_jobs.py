"""A change of idle slots: what protects running jobs, before, behind and after the gate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.plan import Policy
from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError
from aliquot.slurm.client.errors import BusyError, OldSlurmError, SlurmUnavailableError
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmReservation, Version
from aliquot.slurm.node import reconfigure
from aliquot.slurm.node import slot_gate as gate
from aliquot.slurm.node import transaction as apply
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.dry_run import preview
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings
from support.slurmfake import Host

HALVES, WHOLE = "3g.20gb*2", "7g.40gb"
GATE = "aliquot-n1"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a slot board of two GPUs, each with one instance that fills it."""
    made = Host(tmp_path, monkeypatch)
    made.static("gpu:a100:2")
    made.read_files()
    assert made.apply("0-1", WHOLE, slots(made)).status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    made.cluster.calls.clear()
    made.messages.clear()
    return made


def slots(host: Host) -> SlurmNodeSettings:
    return replace(host.settings, slots=True)


def job(host: Host, slot: int, *, number: int = 7, kind: str = "a100_7g.40gb", state: str = "RUNNING") -> None:
    """Let a job have a slot, as Slurm reports it."""
    gres = Gres("gpu", kind, 1, (slot,))
    host.cluster.queue.append(SlurmJob(number, state, user="ann", nodes=("n1",), allocated=(("n1", gres),)))
    host.cluster.change("n1", gres_used=(*host.now.gres_used, gres))


def profiles(host: Host, gpu: int) -> list[str]:
    return [i.profile for i in host.node.backend.read().gpus[gpu].instances]


def record(host: Host) -> ChangeRecord:
    found = host.context.file.read()
    assert found is not None
    return found


def closed(host: Host) -> bool:
    """Report whether a reservation keeps new jobs away."""
    return any(each.name == GATE for each in host.cluster.reserved)


def test_an_idle_gpu_changes_and_the_node_is_never_drained(host: Host) -> None:
    job(host, 0)
    outcome = host.apply("1", HALVES, slots(host))
    assert outcome.status == "done"
    assert (profiles(host, 0), profiles(host, 1)) == ([WHOLE], ["3g.20gb", "3g.20gb"])
    assert not [call for call in host.cluster.calls if call.startswith(("drain", "resume"))]
    assert not closed(host)
    assert [step for step, _ in outcome.steps] == ["wait", "gate", "gpus", "files", "tell", "verify", "release"]


def test_one_half_of_a_gpu_changes_beside_a_job_on_the_other(host: Host) -> None:
    assert host.apply("1", HALVES, slots(host)).status == "done"
    job(host, 11, kind="a100_3g.20gb")
    assert host.apply("1", "3g.20gb@4,1g.5gb@0,2g.10gb@2", slots(host)).status == "done"
    now = host.node.backend.read().gpus[1].instances
    assert sorted((i.profile, i.place.start) for i in now) == [("1g.5gb", 0), ("2g.10gb", 2), ("3g.20gb", 4)]


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING"])
def test_a_gpu_that_a_job_needs_is_refused_before_anything_happens(host: Host, state: str) -> None:
    job(host, 7, state=state)
    with pytest.raises(BusyError, match="jobs have the slots") as refused:
        host.apply("1", HALVES, slots(host))
    assert any("GPU 1 stays as it is" in line for line in refused.value.details)
    assert any("job 7 (no name of ann)" in line for line in refused.value.details)
    assert profiles(host, 1) == [WHOLE]
    assert not [call for call in host.cluster.calls if call.startswith("reserve")]


def test_a_slot_that_only_the_node_counts_as_used_is_kept(host: Host) -> None:
    # Slurm has dropped the job, but not yet freed its GRES.
    host.cluster.change("n1", gres_used=(Gres("gpu", "a100_7g.40gb", 1, (7,)),))
    with pytest.raises(BusyError):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]


def test_a_slot_that_only_a_job_names_is_kept(host: Host) -> None:
    # A suspended job is no longer in the node's counts.
    job(host, 7, state="SUSPENDED")
    host.cluster.change("n1", gres_used=())
    with pytest.raises(BusyError):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]


def test_a_job_whose_slots_slurm_does_not_name_stops_everything(host: Host) -> None:
    job(host, 0)
    host.cluster.queue = [replace(host.cluster.queue[0], allocated=(("n1", Gres("gpu", "a100_7g.40gb", 1)),))]
    with pytest.raises(BlockedError, match="Slurm does not name the slots of job 7 on n1"):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]


def test_a_job_that_takes_a_slot_in_the_last_moment_keeps_it(host: Host) -> None:
    host.at("gate", lambda: job(host, 7))
    with pytest.raises(BusyError, match="jobs have the slots"):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)
    assert record(host).status == "refused"


def test_the_rest_of_a_request_is_done_if_a_job_takes_one_gpu_in_the_last_moment(host: Host) -> None:
    host.at("gate", lambda: job(host, 7))
    outcome = host.apply("0-1", HALVES, slots(host))
    assert (outcome.status, outcome.exit_code) == ("done", 20)
    assert (profiles(host, 0), profiles(host, 1)) == (["3g.20gb", "3g.20gb"], [WHOLE])
    assert any("GPU 1 stays as it is" in note for note in outcome.notes)
    assert not closed(host)


def test_the_slots_are_read_only_after_no_job_can_start(host: Host) -> None:
    host.apply("1", HALVES, slots(host))
    calls = host.cluster.calls
    last_look = max(n for n, call in enumerate(calls) if call == "queue n1")
    assert calls.index("reserve n1") < last_look < calls.index(f"extend {GATE}") < calls.index("reconfigure")


@pytest.mark.parametrize("step", ["gpus", "files", "tell"])
def test_nothing_changes_while_the_reservation_is_gone(host: Host, step: str) -> None:
    # An administrator deletes it.
    seen: list[bool] = []

    def gone() -> None:
        host.cluster.reserved = []

    def look() -> None:
        seen.append(gate.is_held("n1", host.context))

    before = {"gpus": "gate", "files": "gpus", "tell": "files"}[step]
    host.at(before, gone, after=True)
    host.at(step, look)
    assert host.apply("1", HALVES, slots(host)).status == "done"
    assert seen == [True]
    assert host.cluster.calls.count("reserve n1") == 2


def test_a_job_that_started_on_a_changed_slot_stops_the_change_on_record(host: Host) -> None:
    def gone() -> None:
        host.cluster.reserved = []
        job(host, 7)

    host.at("gpus", gone, after=True)
    with pytest.raises(BusyError, match="jobs started on slots that have changed") as stopped:
        host.apply("1", HALVES, slots(host))
    assert stopped.value.next_step == "aliquot slurm apply --continue --node-name n1"
    assert closed(host)
    assert (record(host).status, record(host).undoing) == ("open", False)
    host.cluster.queue = []
    host.cluster.change("n1", gres_used=())
    assert apply.continue_change(host.context).status == "done"
    assert not closed(host)


@pytest.mark.parametrize("step", ["files", "tell"])
def test_slots_are_read_again_after_an_interruption_whatever_the_reservation_says(host: Host, step: str) -> None:
    # An administrator deletes the reservation, a job starts, and another command reserves the node again.
    host.at(step, fails(SlurmUnavailableError("slurmctld does not answer")))
    with pytest.raises(SlurmUnavailableError):
        host.apply("1", HALVES, slots(host))
    job(host, 7)
    written = (host.folder / "etc/gres.conf").read_text()
    host.cluster.calls.clear()
    with pytest.raises(BusyError, match="jobs started on slots that have changed") as stopped:
        apply.continue_change(host.context)
    assert any("job 7 (no name of ann)" in line for line in stopped.value.details)
    assert (host.folder / "etc/gres.conf").read_text() == written
    assert "reconfigure" not in host.cluster.calls
    assert closed(host)
    host.cluster.queue = []
    host.cluster.change("n1", gres_used=())
    assert apply.continue_change(host.context).status == "done"
    assert profiles(host, 1) == ["3g.20gb", "3g.20gb"]
    assert not closed(host)


def test_the_number_of_records_never_changes(host: Host) -> None:
    job(host, 0)
    for request in (HALVES, "1g.5gb*7", "2g.10gb*3,1g.5gb", WHOLE):
        host.cluster.change("n1", slurmd_start=1000)
        assert host.apply("1", request, slots(host)).status == "done"
        assert sum(gres.count for gres in host.now.gres) == 15


def fails(error: BaseException) -> Callable[[], None]:
    def hand() -> None:
        raise error

    return hand


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["gate", "gpus", "files", "verify"])
def test_a_failure_leads_back_and_jobs_may_start_again(host: Host, step: str, after: bool) -> None:
    job(host, 0)
    host.at(step, fails(BlockedError("no")), after=after)
    if step == "gate":
        with pytest.raises(BlockedError, match="no"):
            host.apply("1", HALVES, slots(host))
    else:
        outcome = host.apply("1", HALVES, slots(host))
        assert (outcome.status, outcome.drained) == ("undone", False)
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)
    assert not host.now.draining


@pytest.mark.parametrize("step", ["wait", "gate", "gpus", "files", "tell", "verify"])
def test_a_signal_leads_back(host: Host, step: str) -> None:
    host.at(step, fails(KeyboardInterrupt()), after=True)
    if step in ("wait", "gate"):
        with pytest.raises(ApplyInterruptedError):
            host.apply("1", HALVES, slots(host))
    else:
        outcome = host.apply("1", HALVES, slots(host))
        assert (outcome.status, outcome.exit_code) == ("undone", 130)
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)
    assert record(host).status in ("undone", "refused")


@pytest.mark.parametrize("after", [False, True])
def test_a_signal_at_the_end_does_not_lead_back_from_where_jobs_may_start(host: Host, after: bool) -> None:
    host.at("release", fails(KeyboardInterrupt()), after=after)
    outcome = host.apply("1", HALVES, slots(host))
    assert (outcome.status, outcome.exit_code) == ("done", 130)
    assert profiles(host, 1) == ["3g.20gb", "3g.20gb"]
    assert not closed(host)
    assert record(host).status == "done"


def test_a_reservation_that_cannot_be_deleted_stays_on_record(host: Host) -> None:
    host.at("release", fails(BlockedError("not permitted")))
    with pytest.raises(BlockedError, match="not permitted") as stopped:
        host.apply("1", HALVES, slots(host))
    assert stopped.value.next_step == "aliquot slurm apply --continue --node-name n1"
    assert (record(host).status, record(host).undoing, closed(host)) == ("open", False, True)
    assert apply.continue_change(host.context).status == "done"
    assert profiles(host, 1) == ["3g.20gb", "3g.20gb"]
    assert not closed(host)


def test_a_second_signal_stops_on_record_and_no_job_starts(host: Host) -> None:
    def twice() -> None:
        host.at("gpus", fails(KeyboardInterrupt()))
        raise KeyboardInterrupt

    host.at("gpus", twice, after=True)
    with pytest.raises(ApplyInterruptedError):
        host.apply("1", HALVES, slots(host))
    assert record(host).status == "open"
    assert closed(host)
    assert apply.undo_change(host.context).status == "undone"
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)


def test_slurmctld_unavailable_in_the_middle_leaves_the_gate_closed(host: Host) -> None:
    host.at("verify", fails(SlurmUnavailableError("slurmctld does not answer")))
    with pytest.raises(SlurmUnavailableError) as stopped:
        host.apply("1", HALVES, slots(host))
    assert any("takes no new jobs" in line for line in stopped.value.details)
    assert closed(host)
    assert apply.continue_change(host.context).status == "done"
    assert not closed(host)


def test_another_change_waits_for_one_that_was_interrupted(host: Host) -> None:
    host.at("verify", fails(SlurmUnavailableError("slurmctld does not answer")))
    with pytest.raises(SlurmUnavailableError):
        host.apply("1", HALVES, slots(host))
    with pytest.raises(BlockedError, match="an earlier change of the slots of n1 was interrupted") as refused:
        host.apply("1", HALVES)
    assert refused.value.next_step == "aliquot slurm apply --continue --node-name n1"
    assert host.apply("0", HALVES, slots(host)).status == "done"
    assert not closed(host)


def test_the_gate_opens_by_itself_until_something_changes(host: Host) -> None:
    found: list[SlurmReservation] = []
    host.cluster.before = lambda call: found.extend(host.cluster.reserved) if call.startswith("extend") else None
    host.apply("1", HALVES, slots(host))
    assert [(each.name, each.end - each.start) for each in found] == [(GATE, 300)]


def test_a_gate_that_slurm_does_not_keep_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.cluster, "extend_reservation", lambda name: None)
    with pytest.raises(BlockedError, match="Slurm does not keep reservation aliquot-n1") as refused:
        host.apply("1", HALVES, slots(host))
    assert refused.value.code == "GATE_OPEN"
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)


def test_a_look_that_took_too_long_counts_for_nothing(host: Host) -> None:
    # The reservation may have ended meanwhile, and a job may have started.
    def slow(call: str) -> None:
        if call == "queue n1" and closed(host):
            host.cluster.before = lambda call: None
            host.node.clock.sleep(300)

    host.cluster.before = slow
    with pytest.raises(BlockedError, match="took more than 4 minutes"):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)


def test_a_reservation_of_an_earlier_change_that_ends_soon_is_renewed(host: Host) -> None:
    host.cluster.reserve(GATE, "n1", 1)
    assert host.apply("1", HALVES, slots(host)).status == "done"
    assert not closed(host)


def maintenance(name: str, begins_s: float, *flags: str, node: str = "n1") -> SlurmReservation:
    """Build a site's reservation of a day that begins in some seconds."""
    begin = int(time.time() + begins_s)
    return SlurmReservation(name, (node,), flags or ("MAINT", "SPEC_NODES"), begin, begin + 86400)


@pytest.mark.parametrize("begins_s", [-3600, 600])
def test_a_reservation_for_maintenance_could_let_jobs_in(host: Host, begins_s: float) -> None:
    host.cluster.reserved = [maintenance("friday", begins_s)]
    with pytest.raises(BusyError, match="reservation friday is for maintenance") as refused:
        host.apply("1", HALVES, slots(host))
    assert refused.value.next_step == "scontrol show reservation friday"
    assert profiles(host, 1) == [WHOLE]


def test_reservations_that_let_no_job_in_block_nothing(host: Host) -> None:
    host.cluster.reserved = [
        maintenance("next-week", 7 * 86400),
        maintenance("over", -2 * 86400),
        maintenance("class", -60, "SPEC_NODES"),
        maintenance("other", -60, "MAINT", node="n2"),
    ]
    before = list(host.cluster.reserved)
    assert host.apply("1", HALVES, slots(host)).status == "done"
    assert host.cluster.reserved == before


def test_a_maintenance_that_begins_before_the_gate_is_closed_is_found_there(host: Host) -> None:
    host.at("gate", lambda: host.cluster.reserved.append(maintenance("friday", -1)))
    with pytest.raises(BusyError, match="reservation friday is for maintenance"):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]
    assert not closed(host)


def test_an_interrupted_change_goes_on_only_after_a_maintenance(host: Host) -> None:
    host.at("files", fails(SlurmUnavailableError("slurmctld does not answer")))
    with pytest.raises(SlurmUnavailableError):
        host.apply("1", HALVES, slots(host))
    host.cluster.reserved.append(maintenance("friday", -60))
    with pytest.raises(BusyError, match="reservation friday is for maintenance") as refused:
        apply.continue_change(host.context)
    assert "This may help: scontrol show reservation friday" in refused.value.details
    assert closed(host)
    host.cluster.delete_reservation("friday")
    assert apply.continue_change(host.context).status == "done"


def test_a_gpu_that_is_gone_blocks_the_board_whatever_is_requested(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    found = host.node.backend.read()
    monkeypatch.setattr(host.node.backend, "read", lambda: replace(found, gpus=found.gpus[:1]))
    files = [(host.folder / "etc" / name).read_text() for name in ("slurm.conf", "gres.conf")]
    with pytest.raises(BlockedError, match="a GPU of n1 is missing") as refused:
        host.apply("0", HALVES, slots(host))
    assert refused.value.code == "MISSING_GPU"
    assert [(host.folder / "etc" / name).read_text() for name in ("slurm.conf", "gres.conf")] == files
    assert profiles(host, 0) == [WHOLE]
    assert not [call for call in host.cluster.calls if call.startswith(("drain", "reserve"))]
    fewer = SlurmChange(replace(slots(host), gpus=(found.gpus[0].pci,)), Desired(()))
    assert preview(fewer, host.context).status == "would"


def test_a_job_with_the_last_record_stops_everything(host: Host) -> None:
    # It can open capabilities of instances that do not exist yet.
    job(host, 14, kind="pad")
    with pytest.raises(BlockedError, match="job 7 has the record of the unused capabilities"):
        host.apply("1", HALVES, slots(host))
    assert profiles(host, 1) == [WHOLE]


def test_a_job_with_a_pad_keeps_its_slot_a_pad(host: Host) -> None:
    job(host, 11, kind="pad")
    with pytest.raises(BusyError) as refused:
        host.apply("1", HALVES, slots(host))
    assert any("GPU 1 stays as it is: job 7 has slot 11" in line for line in refused.value.details)
    assert host.apply("1", "3g.20gb@0", slots(host)).status == "done"


@pytest.mark.parametrize("held", ["force", "wait"])
def test_no_policy_takes_an_instance_from_a_job(host: Host, held: str) -> None:
    job(host, 7)
    with pytest.raises(BusyError):
        host.apply("1", HALVES, slots(host), policy=Policy(held=held))  # type: ignore[arg-type]
    assert profiles(host, 1) == [WHOLE]


def test_jobs_that_hold_the_slots_are_waited_for_without_a_gate(host: Host) -> None:
    job(host, 7)
    looks = [0]

    def ends(call: str) -> None:
        looks[0] += call == "queue n1"
        assert not closed(host) or not host.cluster.queue
        if looks[0] == 6:
            host.cluster.queue = []
            host.cluster.change("n1", gres_used=())

    host.cluster.before = ends
    assert host.apply("1", HALVES, slots(host), jobs="wait", timeout_s=60.0).status == "done"
    assert any("waiting for GPU 1 stays as it is" in line for line in host.messages)


def test_waiting_ends_with_the_jobs_that_are_in_the_way(host: Host) -> None:
    job(host, 7)
    with pytest.raises(BusyError):
        host.apply("1", HALVES, slots(host), jobs="wait", timeout_s=5.0)
    assert not closed(host)


def test_only_the_jobs_in_the_way_are_requeued(host: Host) -> None:
    job(host, 0, number=6)
    job(host, 7)
    free = (Gres("gpu", "a100_7g.40gb", 1, (0,)),)
    host.cluster.before = lambda call: host.cluster.change("n1", gres_used=free) if call == "requeue 7" else None
    assert host.apply("1", HALVES, slots(host), jobs="requeue").status == "done"
    assert [j.id for j in host.cluster.queue] == [6]


def test_a_job_whose_prolog_runs_is_waited_for(host: Host) -> None:
    def begins() -> None:
        job(host, 0, state="CONFIGURING")
        host.cluster.before = ready

    def ready(call: str) -> None:
        if len([c for c in host.cluster.calls if c == "queue n1"]) > 5:
            host.cluster.queue = [replace(each, state="RUNNING") for each in host.cluster.queue]

    host.at("gate", begins)
    assert host.apply("1", HALVES, slots(host)).status == "done"


def test_an_older_slurm_stops_slurmd_before_slurmctld_and_starts_it_whatever_happens(host: Host) -> None:
    host.cluster.release = Version(22, 5, 8)
    trace = host.folder / "trace"
    settings = replace(slots(host), controller_restart=f"echo $ALIQUOT_SLURMCTLD_OPTIONS > {trace}")
    assert host.apply("1", HALVES, settings).status == "done"
    assert trace.read_text() == "-R\n"
    assert [line.split()[0] for line in host.slurmd.log[-2:]] == ["stop", "start"]
    host.cluster.change("n1", slurmd_start=1000)
    with pytest.raises(AliquotError, match="--slurmctld-restart ended with status 3"):
        host.apply("1", WHOLE, replace(settings, controller_restart="exit 3"))
    assert host.slurmd.log[-1].split()[0] == "start"
    assert closed(host)


def test_other_nodes_are_reserved_after_the_files_are_distributed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # The reservation ends by itself, and a copy to all nodes may take as long as it lasts.
    host.cluster.release = Version(22, 5, 8)
    host.cluster.records["n2"] = SlurmNode("n2", frozenset({"IDLE"}), gres=host.cluster.records["n1"].gres)
    monkeypatch.setattr(reconfigure, "push_files", lambda *_: host.cluster.calls.append("push"))
    assert host.apply("1", HALVES, replace(slots(host), controller_restart="true")).status == "done"
    assert host.cluster.calls.index("push") < host.cluster.calls.index("reserve n2")


def test_slurmd_runs_again_before_the_new_slurmctld_answers(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps of running jobs need slurmd, and wait a second for each failure.
    host.cluster.release = Version(22, 5, 8)
    seen: list[str] = []

    def unavailable(*_: object) -> None:
        seen.append(host.slurmd.log[-1].split()[0])
        raise SlurmUnavailableError("slurmctld does not answer")

    monkeypatch.setattr(waiting, "wait_for_controller", unavailable)
    with pytest.raises(SlurmUnavailableError):
        host.apply("1", HALVES, replace(slots(host), controller_restart="true"))
    assert seen == ["start"]
    assert closed(host)


@pytest.mark.parametrize(
    ("forgets", "note"),
    [((), ""), (("n1",), ""), (("n1", "n3"), "state of n3 when"), (("n2", "n3"), "state of n2 and 1 more when")],
)
def test_nodes_that_slurmctld_forgot_are_reported(
    host: Host, monkeypatch: pytest.MonkeyPatch, forgets: tuple[str, ...], note: str
) -> None:
    host.cluster.release = Version(22, 5, 8)
    states = {"n2": "IDLE", "n3": "ALLOCATED", "never-registered": "UNKNOWN"}
    host.cluster.records |= {name: SlurmNode(name, frozenset({state})) for name, state in states.items()}

    def restart(_: ChangeRecord, options: str) -> None:
        for name in forgets:
            host.cluster.change(name, states=frozenset({"UNKNOWN"}))

    monkeypatch.setattr(reconfigure, "restart_controller", restart)
    host.at("tell", lambda: host.cluster.change("n1", states=frozenset({"IDLE"})), after=True)
    assert host.apply("1", HALVES, replace(slots(host), controller_restart="true")).status == "done"
    found = [line for line in host.messages if line.startswith("note: slurmctld forgot")]
    assert [note in line for line in found] == ([True] if note else [])


@pytest.mark.parametrize(
    ("command", "why"), [("", "only when slurmctld starts"), ("by-hand", "while slurmd is stopped")]
)
def test_an_older_slurm_needs_a_command_that_restarts_slurmctld(host: Host, command: str, why: str) -> None:
    host.cluster.release = Version(22, 5, 8)
    with pytest.raises(OldSlurmError, match=why):
        host.apply("1", HALVES, replace(slots(host), controller_restart=command))
    assert profiles(host, 1) == [WHOLE]


def test_slurmctld_has_the_node_up_while_it_restarts_and_slurm_conf_stays_as_it_was(host: Host) -> None:
    conf = host.folder / "etc/slurm.conf"
    during: list[str] = []
    host.cluster.before = lambda call: during.append(conf.read_text()) if call == "reconfigure" else None
    assert host.apply("1", HALVES, slots(host)).status == "done"
    assert [text.rstrip().endswith(" State=IDLE") for text in during] == [True]
    assert "State=" not in conf.read_text()


def test_a_state_in_slurm_conf_comes_back(host: Host) -> None:
    conf = host.folder / "etc/slurm.conf"
    conf.write_text(conf.read_text().replace("CPUs=2", "State=UNKNOWN CPUs=2"))
    host.at("verify", fails(BlockedError("no")))
    assert host.apply("1", HALVES, slots(host)).status == "undone"
    assert "State=UNKNOWN CPUs=2" in conf.read_text()


def test_a_change_of_mig_mode_needs_an_empty_node_and_keeps_the_board(host: Host) -> None:
    job(host, 0)
    change = SlurmChange(slots(host), Desired((DesiredGpu(host.node.backend.read().gpus[1].pci, False),)))
    with pytest.raises(BusyError, match="jobs are on it"):
        apply.apply(change, host.context)
    host.cluster.queue = []
    host.cluster.change("n1", gres_used=())
    assert apply.apply(change, host.context).status == "done"
    assert "drain n1" in host.cluster.calls
    assert sorted(map(str, host.now.gres)) == ["gpu:a100:1", "gpu:a100_7g.40gb:1", "gpu:pad:13"]


def test_the_preview_shows_what_changes_and_what_jobs_keep(host: Host) -> None:
    job(host, 7)
    change = SlurmChange(slots(host), host.node.desired_state("0-1", HALVES))
    shown = preview(change, host.context)
    assert shown.status == "would"
    assert shown.steps == ("wait", "gate", "gpus", "files", "tell", "verify", "release")
    assert shown.jobs == ("job 7 (no name of ann): running",)
    assert any("GPU 1 stays as it is" in note for note in shown.notes)
    assert "gpu:a100_3g.20gb:2" in shown.gres
    assert not closed(host)


def test_nothing_to_do_is_found_without_a_gate(host: Host) -> None:
    job(host, 0)
    assert host.apply("0-1", WHOLE, slots(host)).status == "nothing"
    assert not [call for call in host.cluster.calls if call.startswith("reserve")]


def test_gpus_that_changed_without_slurm_are_adopted_slot_by_slot(host: Host) -> None:
    # A user ran ``aliquot apply`` on an idle GPU.
    host.node.cut("1", HALVES)
    job(host, 0)
    change = SlurmChange(slots(host))
    assert apply.apply(change, host.context).status == "done"
    assert "gpu:a100_3g.20gb:2" in ",".join(map(str, host.now.gres))
