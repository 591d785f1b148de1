"""When the Slurm controller looks before it is time, and that it does not do so all the time."""

from __future__ import annotations

from aliquot.slurm.client.models import Gres, Job
from aliquot.slurm.controller.poll_hint import Glances


def job(number: int, state: str = "PENDING") -> Job:
    return Job(id=number, state=state, wanted=(("node", Gres("gpu", "a100_1g.5gb", 1)),))


def test_a_job_that_comes_is_news_and_one_that_goes_is_not() -> None:
    seen = Glances()
    seen.looked((job(1), job(2)))
    seen.decided(frozenset(), waits=False)
    assert not seen.news((job(1), job(2)))
    assert not seen.news((job(2),))
    assert not seen.news((job(1, "RUNNING"), job(2)))
    assert seen.news((job(1), job(2), job(3)))
    assert seen.news((Job(id=3, state="PENDING", features="thirds"),))
    assert not seen.news((Job(id=3, state="PENDING"),)), "it wants no GPU"


def test_one_that_ends_is_news_while_others_wait_for_gpus() -> None:
    seen = Glances()
    seen.looked((job(1), job(2, "RUNNING")))
    seen.decided(frozenset({2}), waits=True)
    assert not seen.news((job(1), job(2, "RUNNING")))
    assert seen.news((job(1),))


def test_glances_leave_most_of_the_time_to_others() -> None:
    seen = Glances()
    assert seen.pause(5.0) == 1.0
    assert seen.pause(0.1) == 1.0
    assert seen.pause(60.0) == 12.0
    seen.took = 2.0
    assert seen.pause(5.0) == 20.0
