"""Offers to jobs: totals, free devices now and soon, layouts on demand."""

from __future__ import annotations

import msgspec

from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition
from aliquot.slurm.controller.settings import PartitionRules, SlurmControllerSettings
from aliquot.slurm.types.offers import ClusterView, Release, TypeOffer, offered_types
from aliquot.slurm.types.on_demand import DemandOffer, on_demand_types

NOW = 1_000_000.0
SMALL, BIG = "a100_1g.5gb", "a100_3g.20gb"


def node(name: str, gres: str, *states: str, used: str = "", **more: object) -> SlurmNode:
    """Return a node from ``1g:7,3g:2`` words."""
    base = SlurmNode(
        name, frozenset(states or ("IDLE",)), gres=gpus(gres), gres_used=gpus(used), partitions=("main",), cpus=16
    )
    return msgspec.structs.replace(base, **more)


def gpus(text: str) -> tuple[Gres, ...]:
    pairs = (each.split(":") for each in text.split(",") if each)
    return tuple(Gres("gpu", {"1g": SMALL, "3g": BIG}.get(kind, kind), int(count)) for kind, count in pairs)


def job(number: int, end_in_s: int, *pairs: tuple[str, str], state: str = "RUNNING") -> SlurmJob:
    allocated = tuple((name, each) for name, text in pairs for each in gpus(text))
    return SlurmJob(number, state, allocated=allocated, latest_end=int(NOW) + end_in_s if end_in_s else 0)


def offers(
    *nodes: SlurmNode,
    jobs: tuple[SlurmJob, ...] = (),
    partitions: tuple[SlurmPartition, ...] = (SlurmPartition("main"), SlurmPartition("debug")),
    settings: SlurmControllerSettings | None = None,
) -> dict[str, TypeOffer]:
    view = ClusterView(nodes, jobs, partitions, NOW)
    return {each.type: each for each in offered_types(view, on_demand_types(nodes, settings))}


def test_each_type_has_its_total_and_what_is_free() -> None:
    found = offers(node("n1", "1g:7,3g:1", used="1g:3,3g:1"), node("n2", "1g:7"))
    assert (found[SMALL].total, found[SMALL].free) == (14, 11)
    assert (found[BIG].total, found[BIG].free) == (1, 0)
    assert found[BIG].facts.memory_mib == 20096


def test_whole_gpus_come_first_then_the_large_types() -> None:
    assert list(offers(node("n1", "1g:1,a100:1,3g:1"))) == ["a100", BIG, SMALL]


def test_devices_where_no_job_can_start_are_not_free() -> None:
    # drained and dead nodes do not even count; a node without an idle CPU or under maintenance serves later
    assert offers(node("n1", "1g:7", "IDLE", "DRAIN"))[SMALL].total == 0
    assert offers(node("n1", "1g:7", "DOWN", "NOT_RESPONDING"))[SMALL].total == 0
    for busy in (
        node("n1", "1g:7", "ALLOCATED", cpus_allocated=16),
        node("n1", "1g:7", "IDLE", "MAINTENANCE", "RESERVED"),
        node("n1", "1g:7", "IDLE", "RESERVED"),
    ):
        assert (offers(busy)[SMALL].total, offers(busy)[SMALL].free) == (7, 0)


def test_a_node_that_power_saving_starts_serves() -> None:
    assert offers(node("n1", "1g:7", "IDLE", "CLOUD", "POWERED_DOWN"))[SMALL].free == 7
    assert offers(node("n1", "1g:7", "IDLE", "POWERED_DOWN"))[SMALL].free == 0


def test_devices_in_partitions_that_are_down_are_not_free() -> None:
    found = offers(node("n1", "1g:7"), partitions=(SlurmPartition("main", up=False),))
    assert (found[SMALL].total, found[SMALL].free) == (7, 0)
    assert [(p.name, p.up, p.total, p.free) for p in found[SMALL].partitions] == [("main", False, 7, 0)]
    assert found[SMALL].example == f"sbatch --gres=gpu:{SMALL}:1 job.sh"


def test_running_jobs_say_when_their_devices_are_free() -> None:
    node_1 = node("n1", "1g:7", used="1g:6")
    jobs = (
        job(1, 600, ("n1", "1g:1")),
        job(2, 300, ("n1", "1g:2")),
        job(3, 300, ("n1", "1g:1")),
        job(4, 0, ("n1", "1g:1")),  # no time limit
        job(5, 100, state="PENDING"),
        job(6, 365 * 86400, ("n1", "1g:1")),  # what backfill makes of a job without one
    )
    found = offers(node_1, jobs=jobs)[SMALL]
    assert found.soon == (Release(int(NOW) + 300, 3), Release(int(NOW) + 600, 1))
    assert found.later == 2


def test_a_job_that_is_ending_frees_its_devices_now_and_not_in_the_past() -> None:
    found = offers(node("n1", "1g:7", used="1g:1"), jobs=(job(1, -50, ("n1", "1g:1"), state="COMPLETING"),))[SMALL]
    assert found.soon == (Release(int(NOW), 1),)


def test_devices_of_jobs_that_slurm_hides_have_an_later() -> None:
    # With PrivateData=jobs a user sees only own jobs.
    found = offers(node("n1", "1g:7", used="1g:4"), jobs=(job(1, 60, ("n1", "1g:1")),))[SMALL]
    assert (found.soon, found.later) == ((Release(int(NOW) + 60, 1),), 3)


def test_what_ends_on_a_node_out_of_service_frees_nothing() -> None:
    found = offers(node("n1", "1g:7", "MIXED", "DRAIN", used="1g:1"), jobs=(job(1, 60, ("n1", "1g:1")),))[SMALL]
    assert (found.soon, found.later) == ((), 0)


def test_the_filler_of_the_slot_board_and_types_with_no_device_are_not_offered() -> None:
    assert set(offers(node("n1", "1g:2,pad:5,flip:0"))) == {SMALL}


def test_an_untyped_gpu_is_requested_without_a_type() -> None:
    found = offers(msgspec.structs.replace(node("n1", ""), gres=(Gres("gpu", "", 4), Gres("nic", "", 1))))[""]
    assert (found.request, found.total) == ("--gres=gpu:1", 4)


def test_a_request_names_its_type_and_the_example_its_best_partition() -> None:
    found = offers(
        node("n1", "3g:2", used="3g:2"),
        node("n2", "3g:1", partitions=("debug",)),
        partitions=(SlurmPartition("main"), SlurmPartition("debug")),
    )[BIG]
    assert found.request == f"--gres=gpu:{BIG}:1"
    assert found.example == f"sbatch --partition=debug --gres=gpu:{BIG}:1 job.sh"
    assert [(p.name, p.total, p.free) for p in found.partitions] == [("debug", 1, 1), ("main", 2, 0)]


def test_a_node_in_two_partitions_counts_once() -> None:
    found = offers(node("n1", "3g:2", partitions=("main", "debug")))[BIG]
    assert (found.total, [p.total for p in found.partitions]) == (2, [2, 2])


PLACEHOLDER = node("aliquot-layouts-1234abcd-0", "1g:14,3g:4", "FUTURE", "DRAIN")


def test_placeholders_say_what_is_possible_on_demand() -> None:
    found = offers(node("n1", "1g:7"), PLACEHOLDER)
    assert (found[BIG].total, found[BIG].on_demand) == (0, 4)
    assert (found[SMALL].total, found[SMALL].on_demand) == (7, 14)
    assert found[BIG].example == f"sbatch --partition=main --gres=gpu:{BIG}:1 job.sh"


def test_future_nodes_of_a_site_are_no_promise() -> None:
    assert offers(node("new", "3g:4", "FUTURE")) == {}


def test_the_settings_restrict_what_a_partition_gets_on_demand() -> None:
    both = msgspec.structs.replace(PLACEHOLDER, partitions=("main", "debug"))
    rules = {"main": PartitionRules(profiles=("1g.5gb",)), "debug": PartitionRules(demands=False)}
    assert on_demand_types([both], None) == (
        DemandOffer(BIG, 4, ("debug", "main")),
        DemandOffer(SMALL, 14, ("debug", "main")),
    )
    assert on_demand_types([both], SlurmControllerSettings((), partitions=rules)) == (
        DemandOffer(SMALL, 14, ("main",)),
    )


def test_without_nodes_nothing_is_offered() -> None:
    assert offers() == {}
