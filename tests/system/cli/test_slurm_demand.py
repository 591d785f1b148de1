"""The text of ``aliquot slurm demand``: who does what, why a job waits, and the next command."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.cli.slurm import demand_view
from aliquot.slurm.controller.models import SlurmObservation
from support.slurmtoy import Toy, toy

from . import hints


def text(cluster: Toy) -> str:
    decision = cluster.decide()
    observation = SlurmObservation(cluster.environment(), cluster.queue(), (), cluster.now)
    shown = demand_view.text(observation, decision)
    hints.check_output(shown, "")
    return shown


def test_a_change_is_what_the_controller_would_do() -> None:
    cluster = toy("7g.40gb")
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("3g.20gb", count=2)
    assert text(cluster) == (
        "job 1 3g.20gb:2: repartitioning, the controller repartitions n0 for it\n"
        "n0: the controller would destroy 1 instance, create 2; it would offer 3g.20gb:2\n"
        "  GPU 0000:00:00.0: 7g.40gb -> 3g.20gb:2\n"
        "  for      job 1"
    )


def test_a_job_that_waits_has_a_reason_for_each_node_and_the_next_command() -> None:
    cluster = toy("7g.40gb", "7g.40gb")
    cluster.submit("7g.40gb", seconds=1000)
    cluster.step()
    cluster.nodes["n1"].states |= {"DRAIN"}
    cluster.nodes["n1"].reason = "disk"
    cluster.submit("1g.5gb")
    assert text(cluster) == (
        "job 2 1g.5gb: waits, no node can be repartitioned for 1g.5gb now\n"
        "  n0: 1 job has resources on it\n"
        "  n1: another user or program drained it (disk)\n"
        "  next     scontrol show node n1"
    )


def test_a_job_that_no_layout_helps_is_left_to_slurm() -> None:
    cluster = toy("7g.40gb")
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    cluster.submit("1g.5gb", priority=0, reason="JobHeldUser")
    cluster.submit("1g.5gb", reason="Licenses")
    assert text(cluster) == (
        "job 1: left to Slurm, it is held (JobHeldUser)\n"
        "  next     scontrol release 1\n"
        "job 2: left to Slurm, Slurm keeps it for a reason that no layout changes: Licenses\n"
        "  next     scontrol show job 2"
    )


def test_a_node_whose_change_failed_is_named_with_the_time_of_the_next_try_also_without_jobs() -> None:
    cluster = toy("7g.40gb")
    cluster.history = cluster.history.with_failure(cluster.now, "n0", "slurmd did not start")
    assert text(cluster) == (
        "no pending job waits for GPUs\n"
        "n0: the last change failed (slurmd did not start); the controller tries again in 30 s\n"
        "  next     aliquot slurm node --node-name n0"
    )


def test_nodes_that_do_not_answer_are_no_reason_to_doubt_the_type() -> None:
    cluster = toy("7g.40gb")
    cluster.submit("3g.20gb")
    cluster.schedule = lambda: None  # type: ignore[method-assign]
    found = cluster.environment()
    (node,) = found.node_states
    silent = replace(node, gpus=(), names={}, shut="it does not answer: no answer in 60 s")
    cluster.environment = lambda: replace(found, node_states=(silent,))  # type: ignore[method-assign]
    assert text(cluster) == (
        "job 1 3g.20gb: waits, no managed node answers, so it is unknown what their GPUs support\n"
        "  n0: it does not answer: no answer in 60 s\n"
        "  next     aliquot slurm node --node-name n0\n"
        "n0: it does not answer: no answer in 60 s\n"
        "  next     aliquot slurm node --node-name n0"
    )
