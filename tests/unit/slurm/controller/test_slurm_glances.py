"""Early polls of the Slurm controller, their limit, wakes by Slurm's hooks, and bursts of submissions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.foundation.wake_file import WakeFile
from aliquot.slurm.client.models import Gres, SlurmJob
from aliquot.slurm.controller.poll_hint import ALERT_S, IDLE_S, MOST_SETTLE_S, Burst, PollHint


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


def test_an_idle_controller_asks_once_in_30_seconds_if_hooks_announce_jobs() -> None:
    seen = PollHint()
    seen.idle = True
    seen.observe((), now=0.0)
    assert (seen.until_observation(5.0), seen.until_observation(60.0)) == (IDLE_S, 60.0)
    assert seen.pause(5.0, now=1.0) == 2.0, "no hook has called yet"
    seen.wake(100.0)
    assert seen.pause(5.0, now=101.0) == 1.0, "the job may show a moment after the hook"
    seen.observe((job(1),), now=101.0)
    assert seen.pause(5.0, now=100.1 + ALERT_S) == float("inf")
    seen.observe((job(1), job(2)), now=200.0)
    assert seen.pause(5.0, now=201.0) == 2.0, "this job was not announced"
    seen.idle = False
    assert (seen.until_observation(5.0), seen.pause(5.0, now=201.0)) == (5.0, 1.0), "the interval while demand waits"


def test_a_burst_is_over_a_second_after_its_last_job_and_after_three_at_the_latest() -> None:
    burst = Burst()
    assert burst.pause(0.0) == 0.0
    jobs: tuple[SlurmJob, ...] = ()
    for n in range(3):
        jobs = (*jobs, replace(job(n), submitted=1000))
        burst.observe(jobs, 1000.0 + 0.5 * n)
        assert burst.pause(1000.0 + 0.5 * n) == 1.0
    assert burst.pause(1001.75) == pytest.approx(0.25)
    assert burst.pause(1002.0) == 0.0
    for n in range(10):
        jobs = (*jobs, replace(job(10 + n), submitted=2000))
        burst.observe(jobs, 2000.0 + 0.5 * n)
    assert burst.pause(2000.0 + MOST_SETTLE_S) == 0.0
    burst = Burst()
    burst.observe((replace(job(99), submitted=2900),), 3000.0)
    assert burst.pause(3000.0) == 0.0, "it has waited long enough already"
    burst.observe((replace(job(99), submitted=2900), replace(job(100), submitted=2000)), 3001.0)
    assert burst.pause(3001.0) == 1.0, "clocks of two hosts may differ"


def test_a_touch_wakes_once_and_only_the_owner_and_root_may_touch(tmp_path: Path) -> None:
    file = WakeFile(str(tmp_path / "deep" / "wake"))
    assert not file.touched()
    file.create(os.getuid())
    assert not file.touched()
    os.utime(file.path, ns=(1, 1))
    assert file.touched()
    assert not file.touched()
    assert os.stat(file.path).st_mode & 0o777 == 0o644
