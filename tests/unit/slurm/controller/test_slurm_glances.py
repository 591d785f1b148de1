"""Early polls of the Slurm controller, and their limit."""

from __future__ import annotations

from aliquot.slurm.client.models import Gres, SlurmJob
from aliquot.slurm.controller.poll_hint import PollHint


def job(number: int, state: str = "PENDING") -> SlurmJob:
    return SlurmJob(id=number, state=state, requested=(("node", Gres("gpu", "a100_1g.5gb", 1)),))


def test_a_job_that_comes_is_news_and_one_that_goes_is_not() -> None:
    seen = PollHint()
    seen.observe((job(1), job(2)))
    seen.set_running(frozenset(), waits=False)
    assert not seen.has_news((job(1), job(2)))
    assert not seen.has_news((job(2),))
    assert not seen.has_news((job(1, "RUNNING"), job(2)))
    assert seen.has_news((job(1), job(2), job(3)))
    assert seen.has_news((SlurmJob(id=3, state="PENDING", features="thirds"),))
    assert not seen.has_news((SlurmJob(id=3, state="PENDING"),)), "it wants no GPU"


def test_one_that_ends_is_news_while_others_wait_for_gpus() -> None:
    seen = PollHint()
    seen.observe((job(1), job(2, "RUNNING")))
    seen.set_running(frozenset({2}), waits=True)
    assert not seen.has_news((job(1), job(2, "RUNNING")))
    assert seen.has_news((job(1),))


def test_glances_leave_most_of_the_time_to_others() -> None:
    seen = PollHint()
    assert seen.pause(5.0) == 1.0
    assert seen.pause(0.1) == 1.0
    assert seen.pause(60.0) == 12.0
    seen.observation_s = 2.0
    assert seen.pause(5.0) == 20.0
