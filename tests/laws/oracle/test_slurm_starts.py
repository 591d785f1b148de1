"""The model of Slurm's scheduler starts what real clusters started: 50 recorded queues of each release."""

from __future__ import annotations

import pytest

from aliquot.slurm.conf import hostlist
from support.slurmmodel import ModelJob, ModelNode, SlurmModel
from support.slurmqueues import Recording, load, replayed

RELEASES = ("22.05", "24.11")


@pytest.mark.parametrize("release", RELEASES)
def test_the_model_starts_the_jobs_that_slurm_started(release: str) -> None:
    recordings = load(release)
    assert len(recordings) >= 50
    wrong = [text for recording in recordings if (text := difference(recording))]
    assert not wrong, "\n".join(wrong)


def difference(recording: Recording) -> str:
    """Return the first step at which the model runs other jobs than Slurm, or the same on other nodes."""
    for number, (step, model) in enumerate(replayed(recording)):
        real = {job: tuple(sorted(hostlist.expand(nodes))) for job, nodes in step.running.items()}
        found = {job: tuple(sorted(started.nodes)) for job, started in model.running.items()}
        if real != found:
            return f"seed {recording.seed}, step {number}: Slurm {real}, model {found}"
    return ""


def test_the_recordings_have_every_kind_of_event_and_backfill() -> None:
    for release in RELEASES:
        kinds = {type(step.event).__name__ for recording in load(release) for step in recording.steps}
        assert kinds == {"Submit", "End", "Reserve", "Open"}
        reasons = {reason for each in load(release) for step in each.steps for reason in step.reasons.values()}
        assert {"Resources", "Priority"} <= reasons


def test_the_model_gives_the_reasons_by_which_the_controller_tells_whose_turn_it_is() -> None:
    # Slurm changes a reason only when it considers the job again, so a few are older than the step.
    right = wrong = 0
    for step, model in (pair for release in RELEASES for each in load(release) for pair in replayed(each)):
        for job, reason in step.reasons.items():
            if "_" not in job and reason in ("Resources", "Priority") and runnable(model, job):
                right, wrong = right + (model.reasons.get(job) == reason), wrong + (model.reasons.get(job) != reason)
    assert right > 25 * wrong, (right, wrong)


def runnable(model: SlurmModel, name: str) -> bool:
    """Report whether the open nodes could run a pending job, if they had no other."""
    job = model.pending.get(name)
    open_nodes = [node for node in model.nodes.values() if node.open]
    return job is not None and sum(node.counts.get(job.kind, 0) >= job.count for node in open_nodes) >= job.nodes


def test_a_job_is_backfilled_only_if_it_ends_before_the_planned_start_of_the_one_before() -> None:
    model = SlurmModel({"n1": ModelNode({"3g": 2})})
    model.submit([ModelJob("runs", "3g", limit_s=1200)])
    model.settle(0)
    whole = ModelJob("whole", "3g", 2, limit_s=600, priority=300)
    model.submit([whole, ModelJob("long", "3g", limit_s=1260), ModelJob("short", "3g", limit_s=600, order=1)])
    assert [started.job.id for started in model.settle(0)] == ["short"]
    assert model.reasons == {"whole": "Resources", "long": "Priority"}
