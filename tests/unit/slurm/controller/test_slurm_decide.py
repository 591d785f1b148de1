"""Decisions of the Slurm controller: for which job, on which node, and why not."""

from __future__ import annotations

import msgspec

from aliquot.core.planner.placement_table import compiled_table
from aliquot.slurm.controller.candidates import _no_layout_reason
from aliquot.slurm.controller.models import (
    WAITING,
    SlurmDecision,
)
from aliquot.slurm.controller.settings import Limits, PartitionRules, Rules
from support.slurmtoy import QUICK, Toy, ToyNode, toy


def state(decision: SlurmDecision, job: int) -> str:
    return next(v.state for v in decision.verdicts if v.job == job)


def why(decision: SlurmDecision, job: int) -> str:
    verdict = next(v for v in decision.verdicts if v.job == job)
    return "\n".join([verdict.sentence, *verdict.why])


def step(decision: SlurmDecision, job: int) -> str:
    return next(v.next_step for v in decision.verdicts if v.job == job)


def test_an_idle_record_is_cut_for_a_job_and_room_left_over_is_filled() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("1g.5gb")
    decision = cluster.step()
    (repartition,) = decision.repartitions
    assert (repartition.jobs, repartition.offered, repartition.destroyed) == ((1,), {"1g.5gb": 7}, 1)
    assert cluster.jobs[1].running


def test_nothing_is_cut_where_free_slices_suit() -> None:
    cluster = toy("7g.40gb", "3g.20gb*2")
    cluster.nodes["n1"].states.add("COMPLETING")  # Slurm starts no job at this moment
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("3g.20gb", count=2)
    decision = cluster.decide()
    assert state(decision, 1) == "covered"
    assert not decision.repartitions


def test_of_several_the_record_is_cut_where_least_is_destroyed() -> None:
    cluster = toy("1g.5gb*7", "3g.20gb*2", "7g.40gb")
    cluster.submit("4g.20gb")
    (repartition,) = cluster.step().repartitions
    assert repartition.node_name == "n1"
    assert repartition.destroyed == 1


def test_a_record_with_a_job_is_left_alone() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("7g.40gb", seconds=1000)
    cluster.step()
    cluster.submit("1g.5gb")
    decision = cluster.step()
    assert not decision.repartitions
    assert state(decision, 2) == "waits"
    assert "n0: 1 job has resources on it" in why(decision, 2)


def test_two_jobs_that_want_different_layouts_are_served_by_priority_then_age() -> None:
    cluster = toy("7g.40gb")
    late = cluster.submit("1g.5gb", priority=10)
    first = cluster.submit("3g.20gb", count=2, priority=20)
    decision = cluster.step()
    assert [r.jobs for r in decision.repartitions] == [(first.id,)]
    for _ in range(10):
        cluster.step()
    assert late.done or late.running
    assert len(cluster.trace) == 2, "once for each: no flapping"


def test_the_promise_to_one_job_is_not_broken_for_another() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("3g.20gb", priority=20)
    cluster.step()
    cluster.jobs[1].where = ()  # not started yet
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("7g.40gb", priority=10).reason = "Resources"
    decision = cluster.decide()
    assert state(decision, 1) == "covered"
    assert "promised to job 1" in why(decision, 2)


def test_a_job_that_does_not_start_although_slices_suit_it_keeps_them_for_a_while_only() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("3g.20gb", priority=20)
    cluster.step()
    cluster.jobs[1].where = ()
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("7g.40gb", priority=10).reason = "Resources"
    cluster.decide()
    cluster.now += 61
    decision = cluster.step()
    assert state(decision, 1) == "stuck"
    assert [r.jobs for r in decision.repartitions] == [(2,)]
    decision = cluster.decide()
    assert state(decision, 1) == "stuck", "a change that did not help is not repeated immediately"
    assert not decision.repartitions


def test_limits_are_kept_and_reported() -> None:
    cluster = toy("7g.40gb", limits=Limits(idle_s=30, between_s=100, per_hour=2))
    someone_else_waits(cluster)
    cluster.submit("1g.5gb", priority=900)
    assert "idle for only 0 s" in why(cluster.step(), 2)
    cluster.now += 40
    assert cluster.step().repartitions
    cluster.now += 40
    cluster.submit("3g.20gb", priority=900)
    assert cluster.step(35).repartitions == ()
    decision = cluster.step(0)
    assert "between" in why(decision, 3)
    cluster.now += 100
    assert cluster.step(120).repartitions
    cluster.submit("7g.40gb", priority=900)
    cluster.step(40)
    cluster.step(100)
    assert "changed 2 times in the last hour" in why(cluster.step(), 4)


def someone_else_waits(cluster: Toy) -> None:
    """Submit a job of another user that no cluster of one node can serve."""
    cluster.submit("7g.40gb", nodes=len(cluster.nodes) + 1, user="bob")


def test_no_limit_of_changes_keeps_gpus_idle_while_only_one_user_waits() -> None:
    cluster = toy("7g.40gb", limits=Limits(idle_s=0, between_s=1000, per_hour=1), per_hour=1)
    assert _want_turn_by_turn(cluster, "eve", 10) == 10
    someone_else_waits(cluster)
    cluster.submit("1g.5gb" if cluster.nodes["n0"].counts["7g.40gb"] else "7g.40gb", user="eve", priority=900)
    assert not cluster.step().repartitions


def test_no_more_records_at_once_than_allowed() -> None:
    cluster = toy("7g.40gb", "7g.40gb", "7g.40gb", at_once=2)
    for _ in range(3):
        cluster.submit("1g.5gb", count=7, seconds=1000)
    for job in cluster.jobs.values():
        job.reason = "Resources"
    decision = cluster.decide()
    assert len(decision.repartitions) <= 2
    for _ in range(5):
        cluster.step()
    assert all(j.running for j in cluster.jobs.values())


def test_a_record_that_an_admin_drained_or_that_is_down_is_left() -> None:
    cluster = toy("7g.40gb", "7g.40gb", "7g.40gb")
    cluster.nodes["n0"].states |= {"DRAIN"}
    cluster.nodes["n0"].reason = "disk"
    cluster.nodes["n1"].states = {"DOWN"}
    cluster.nodes["n2"].states = {"IDLE", "INVALID_REG"}
    cluster.submit("1g.5gb")
    decision = cluster.step()
    assert not decision.repartitions
    text = why(decision, 1)
    assert "n0: another user or program drained it (disk)" in text
    assert "n1: it is DOWN in Slurm" in text
    assert "n2: it is IDLE+INVALID_REG in Slurm" in text


def test_rules_of_a_record() -> None:
    rules = Rules(profiles=("1g.5gb", "3g.20gb"), keep={"1g.5gb": 3})
    cluster = toy("1g.5gb*7", rules=rules)
    cluster.submit("3g.20gb")
    (repartition,) = cluster.step().repartitions
    assert repartition.offered == {"1g.5gb": 4, "3g.20gb": 1}
    cluster.submit("3g.20gb", count=2)
    cluster.submit("7g.40gb", priority=500)
    cluster.now += 100
    cluster.step()
    decision = cluster.step()
    assert "together with the instances that are held or must be kept" in why(decision, 2)
    assert "the settings allow no 7g.40gb there (profiles)" in why(decision, 3)
    untouched = toy("7g.40gb", rules=Rules(untouched=True))
    untouched.submit("1g.5gb")
    assert "untouched" in why(untouched.step(), 1)


def test_rules_of_a_partition() -> None:
    cluster = toy("7g.40gb", "1g.5gb*7", partitions={"all": PartitionRules(keep={"1g.5gb": 7})})
    cluster.submit("3g.20gb", count=2)
    (repartition,) = cluster.step().repartitions
    assert repartition.node_name == "n0", "all seven of the other one are to be kept"
    cluster = toy("7g.40gb", partitions={"*": PartitionRules(demands=False)})
    cluster.submit("1g.5gb")
    assert state(cluster.step(), 1) == "alone"
    cluster = toy("7g.40gb", partitions={"all": PartitionRules(profiles=("3g.20gb",))})
    cluster.submit("1g.5gb")
    cluster.submit("3g.20gb")
    decision = cluster.step()
    assert "the settings allow partition all no 1g.5gb" in why(decision, 1)
    assert state(decision, 2) == "cut"


def test_a_job_on_two_nodes_has_both_or_none() -> None:
    cluster = toy("7g.40gb", "7g.40gb")
    cluster.submit("7g.40gb", seconds=20)
    cluster.step(1)
    wide = cluster.submit("1g.5gb", nodes=2)
    assert not cluster.step(1).repartitions, "one of two helps no job"
    for _ in range(6):
        cluster.step()
    assert wide.running or wide.done


def test_a_job_that_waits_long_has_a_busy_record_drained_and_then_cut() -> None:
    cluster = toy("7g.40gb", limits=msgspec.structs.replace(QUICK, patience_s=30.0))
    cluster.submit("7g.40gb", seconds=100)
    cluster.step(1)
    cluster.submit("1g.5gb", priority=50)
    cluster.submit("7g.40gb", priority=10, seconds=100)
    assert state(cluster.step(31), 2) == "waits"
    decision = cluster.step()
    assert state(decision, 2) == "drained"
    assert cluster.nodes["n0"].reason == f"{WAITING}2"
    for _ in range(30):
        cluster.step()
    assert cluster.jobs[2].done
    assert not cluster.jobs[3].where or cluster.jobs[3].ends > cluster.jobs[2].ends


def test_a_record_that_was_drained_for_a_job_which_disappeared_takes_jobs_again() -> None:
    cluster = toy("7g.40gb", limits=msgspec.structs.replace(QUICK, patience_s=0.0))
    cluster.submit("7g.40gb", seconds=1000)
    cluster.step(1)
    gone = cluster.submit("1g.5gb")
    cluster.step()
    assert "DRAIN" in cluster.nodes["n0"].states
    gone.done = True
    assert cluster.step().resume == ("n0",)


def test_jobs_for_what_no_gpu_has_are_reported() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("9g.90gb")
    decision = cluster.step()
    assert why(decision, 1).startswith(
        "no GPU of the managed nodes supports 9g.90gb; they support 1g.10gb, 1g.5gb, 1g.5gb+me, 2g.10gb, 3g.20gb, 4g"
    )
    assert "n0: its GPUs do not support 9g.90gb" in why(decision, 1)
    assert step(decision, 1) == "scontrol show job 1"


def test_a_type_that_the_settings_do_not_allow_is_reported_by_the_key() -> None:
    cluster = toy("7g.40gb", rules=Rules(profiles=("3g.20gb",)))
    cluster.submit("1g.5gb")
    assert "n0: the settings allow no 1g.5gb there (profiles)" in why(cluster.step(), 1)


def test_the_next_command_is_about_the_nodes_that_keep_a_job_waiting() -> None:
    cluster = toy("7g.40gb", "7g.40gb")
    for _ in cluster.nodes:
        cluster.submit("7g.40gb", seconds=1000)
    cluster.step()
    waiting = cluster.submit("1g.5gb")
    assert step(cluster.decide(), waiting.id) == "squeue --nodelist=n0,n1", "jobs end by themselves"
    cluster.nodes["n1"].states |= {"DRAIN"}
    cluster.nodes["n1"].reason = "disk"
    assert step(cluster.decide(), waiting.id) == "scontrol show node n1", "an operator has drained it"
    cluster.history = cluster.history.with_failure(cluster.now, "n0", "slurmd did not start")
    assert step(cluster.decide(), waiting.id) == "aliquot slurm node --node-name n0", "a change failed"


def test_the_next_command_reaches_a_node_as_the_controller_does() -> None:
    cluster = toy("7g.40gb")
    (host,) = cluster.settings.hosts
    reached = msgspec.structs.replace(host, reach=("ssh", "root@gpu 1"))
    cluster.settings = msgspec.structs.replace(cluster.settings, hosts=(reached,))
    cluster.history = cluster.history.with_failure(cluster.now, "n0", "slurmd did not start")
    job = cluster.submit("1g.5gb")
    assert step(cluster.decide(), job.id) == "ssh 'root@gpu 1' aliquot slurm node --node-name n0"


def test_what_fails_is_tried_again_later_and_later() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("1g.5gb")
    pauses = []
    for _ in range(4):
        cluster.history = cluster.history.with_failure(cluster.now, "n0", "slurmd did not start")
        decision = cluster.decide()
        assert "the last change failed (slurmd did not start)" in why(decision, 1)
        pauses.append(cluster.history.failures["n0"].retry_at - cluster.now)
        cluster.now += pauses[-1] + 1
    assert pauses == [30, 60, 120, 240]
    assert cluster.decide().repartitions


def test_a_job_behind_others_brings_nothing_about_where_they_can_be_served() -> None:
    cluster = toy("7g.40gb", "7g.40gb")
    cluster.submit("3g.20gb", count=2, priority=20, seconds=30)
    behind = cluster.submit("1g.5gb", priority=10)
    decision = cluster.step()
    assert state(decision, behind.id) == "waits"
    assert "Slurm lets other jobs go first" in why(decision, behind.id)
    for _ in range(4):
        cluster.step()
    assert behind.running or behind.done


def test_a_feature_that_names_a_layout_is_asked_for_and_set() -> None:
    cluster = Toy({"n0": ToyNode([(("7g.40gb", 0),), (("7g.40gb", 0),)])})
    cluster.settings = msgspec.structs.replace(
        cluster.settings, layouts={"mig_2x3g": {"3g.20gb": 2}, "mig_7g": {"7g.40gb": 1}}
    )
    from aliquot.slurm.client.models import SlurmJob, SlurmPartition
    from aliquot.slurm.controller.decide import decide
    from aliquot.slurm.controller.job_demand import job_queue

    job = SlurmJob(7, "PENDING", reason="Resources", partitions=("all",), features="mig&mig_2x3g", priority=1)
    queue = job_queue([job], [SlurmPartition("all")], cluster.settings.layouts, cluster.now)
    (repartition,) = decide(cluster.environment(), queue, cluster.settings, cluster.now).repartitions
    assert repartition.offered == {"3g.20gb": 4}
    assert repartition.features == ("mig", "mig_2x3g")


def test_a_layout_by_name_is_exact_on_every_gpu_and_comes_to_rest() -> None:
    """Free slices are not filled, and no other instance is kept: otherwise the node would lack the feature and be
    repartitioned again.
    """
    from aliquot.slurm.client.models import SlurmJob, SlurmPartition
    from aliquot.slurm.controller.decide import decide
    from aliquot.slurm.controller.job_demand import job_queue

    cluster = Toy({"n0": ToyNode([(("3g.20gb", 0), ("3g.20gb", 4)), (("7g.40gb", 0),)])})
    cluster.settings = msgspec.structs.replace(cluster.settings, layouts={"small": {"2g.10gb": 2, "1g.5gb": 1}})
    job = SlurmJob(7, "PENDING", reason="Resources", partitions=("all",), features="small", priority=1)
    queue = job_queue([job], [SlurmPartition("all")], cluster.settings.layouts, cluster.now)
    (repartition,) = decide(cluster.environment(), queue, cluster.settings, cluster.now).repartitions
    assert repartition.offered == {"1g.5gb": 2, "2g.10gb": 4}
    assert repartition.features == ("mig", "small")
    table = compiled_table(cluster.family)
    for placement in repartition.placements.values():
        assert sorted(table.profiles[p].name for p, _ in placement or ()) == ["1g.5gb", "2g.10gb", "2g.10gb"]
    cluster.nodes["n0"].placed = [
        tuple((table.profiles[p].name, s) for p, s in repartition.placements[pci] or ())
        for pci in sorted(repartition.placements)
    ]
    cluster.nodes["n0"].features = repartition.features
    assert not decide(cluster.environment(), queue, cluster.settings, cluster.now).repartitions


def test_slices_are_promised_once() -> None:
    cluster = toy("3g.20gb*2", "7g.40gb")
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("3g.20gb", count=2, priority=20)
    cluster.submit("3g.20gb", priority=10)
    decision = cluster.decide()
    assert state(decision, 1) == "covered"
    assert [(r.node_name, r.jobs) for r in decision.repartitions] == [("n1", (2,))]


def test_a_cut_for_one_job_serves_those_behind_it_where_there_is_room() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("3g.20gb", priority=20).reason = "Resources"
    cluster.submit("1g.5gb", count=2, priority=10).reason = "Priority"
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    (repartition,) = cluster.decide().repartitions
    assert repartition.jobs == (1,)
    assert repartition.offered == {"3g.20gb": 1, "1g.5gb": 4}


def test_one_record_is_cut_for_two_jobs_and_not_two() -> None:
    cluster = Toy({"n0": ToyNode([(), ()]), "n1": ToyNode([(), ()])})
    for _ in range(2):
        cluster.submit("7g.40gb").reason = "Resources"
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    (repartition,) = cluster.decide().repartitions
    assert repartition.jobs == (1, 2)


# Effects of one user on others


def test_a_job_that_never_starts_keeps_no_record_from_those_before_it() -> None:
    # Jobs could be submitted one after the other, and each would be promised slices again.
    cluster = toy("7g.40gb")
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("7g.40gb", priority=10, user="eve").reason = "Resources"
    cluster.submit("1g.5gb", priority=20, user="ada").reason = "Resources"
    decision = cluster.decide()
    assert state(decision, 1) == "covered"
    assert [r.jobs for r in decision.repartitions] == [(2,)]
    cluster.jobs[2].reason = "Priority"
    assert not cluster.decide().repartitions, "Slurm reports that it is not its turn"


def test_one_users_queue_does_not_close_every_busy_record() -> None:
    cluster = toy(*["7g.40gb"] * 6, limits=msgspec.structs.replace(QUICK, patience_s=10.0), at_once=2)
    for _ in range(6):
        cluster.submit("7g.40gb", seconds=1000, user="ada")
    cluster.step()
    for _ in range(6):
        cluster.submit("1g.5gb", count=7, user="eve").reason = "Resources"
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.now += 60
    for _ in range(4):
        assert len(cluster.step().drains) == 2
    assert sum("DRAIN" in n.states for n in cluster.nodes.values()) == 2


def _want_turn_by_turn(cluster: Toy, user: str, times: int) -> int:
    """Submit jobs that repartition records back and forth. Return how often that succeeded."""
    before = len(cluster.trace)
    for n in range(times):
        job = cluster.submit(("1g.5gb", "7g.40gb")[n % 2], seconds=1, user=user, priority=900)
        for _ in range(2):
            cluster.step(10)
        cluster.jobs.pop(job.id) if job.pending else None
        cluster.jobs.setdefault(job.id, job).done = True
    return len(cluster.trace) - before


def test_one_user_leaves_others_a_part_of_the_hours_changes() -> None:
    cluster = toy("7g.40gb", limits=Limits(idle_s=0, between_s=0, per_hour=12))
    someone_else_waits(cluster)
    assert _want_turn_by_turn(cluster, "eve", 40) == 9
    job = cluster.submit("1g.5gb" if cluster.nodes["n0"].counts["7g.40gb"] else "7g.40gb", user="eve", priority=900)
    assert "eve caused 9 of its 12 changes per hour" in why(cluster.decide(), job.id)
    job.done = True
    assert _want_turn_by_turn(cluster, "ada", 4) >= 2
    for expected, other in (
        (3, toy("7g.40gb", limits=Limits(idle_s=0, between_s=0, per_hour=3))),
        (6, toy("7g.40gb", per_hour=8)),
    ):
        someone_else_waits(other)
        assert _want_turn_by_turn(other, "eve", 40) == expected


def test_a_gpu_whose_mig_is_off_is_named_with_what_would_turn_it_on() -> None:
    record = toy("7g.40gb").environment().node_states[0]
    off = msgspec.structs.replace(record, gpus=tuple(msgspec.structs.replace(c, placed=None) for c in record.gpus))
    assert "MIG is off on GPU 0000:00:00.0, and 'modes: true'" in _no_layout_reason(off)
    assert "MIG" not in _no_layout_reason(record)
