"""Peaks of jobs from answers of Prometheus. A real one answers in ``tests/system/prometheus``."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from aliquot.errors import UsageError
from aliquot.slurm.report.measured import COMPUTE, MEMORY, JobPeak, LabelMatch, Sample, read_peaks
from aliquot.slurm.report.window import Window

DAY = 86400


class Answers:
    """Results by metric, for each day that is asked for."""

    def __init__(self, memory: list[list[Sample]], compute: list[list[Sample]], steps: list[list[Sample]]) -> None:
        self._left = {"memory": memory, "compute": compute, "steps": steps}
        self.asked: list[tuple[str, float]] = []

    def ask(self, expression: str, at: float) -> list[Sample]:
        self.asked.append((expression, at))
        kind = "steps" if "count_over_time" in expression else "compute" if COMPUTE in expression else "memory"
        return self._left[kind].pop(0) if self._left[kind] else []


def one(job: str, value: float, profile: str = "") -> Sample:
    labels: Mapping[str, str] = {"hpc_job": job} | ({"GPU_I_PROFILE": profile} if profile else {})
    return labels, value


def test_the_window_is_asked_for_day_by_day_and_the_largest_value_counts() -> None:
    answers = Answers(
        memory=[[one("7", 100.2, "3g.20GB")], [one("7", 5000, "3g.20gb"), one("8", 1)]],
        compute=[[one("7", 0.25, "3g.20gb")], [one("7", 0.125, "3g.20gb")]],
        steps=[[one("7", 10, "3g.20gb")], [one("7", 20, "3g.20gb"), one("8", 2)]],
    )
    assert read_peaks(Window(0, 2 * DAY - 600), answers.ask) == {
        (7, "3g.20gb"): JobPeak(5000, 0.25, 9000),
        (8, ""): JobPeak(1, None, 600),
    }
    assert [at for _, at in answers.asked] == [2 * DAY - 600] * 3 + [DAY - 600] * 3
    assert answers.asked[0][0] == (
        'max by (hpc_job, GPU_I_PROFILE) (max_over_time(DCGM_FI_DEV_FB_USED{hpc_job!=""}[86400s]))'
    )
    assert answers.asked[-1][0].endswith(f'(count_over_time({MEMORY}{{hpc_job!=""}}[{DAY - 600}s:300s]))')


def test_labels_are_quoted() -> None:
    answers = Answers([], [], [])
    labels = [LabelMatch.parse("cluster=alpha"), LabelMatch.parse('site=a"} or x{y="\\')]
    read_peaks(Window(0, 10), answers.ask, labels)
    assert 'FB_USED{hpc_job!="",cluster="alpha",site="a\\"} or x{y=\\"\\\\"}[10s]' in answers.asked[0][0]
    for text in ("", "cluster", "=x", "a-b=x", "a b=x"):
        with pytest.raises(UsageError):
            LabelMatch.parse(text)


@pytest.mark.parametrize("job", ["", "x", "-1", "1.5", "٣", "9" * 30])
def test_what_is_not_a_job_is_omitted(job: str) -> None:
    assert read_peaks(Window(0, 10), Answers([[one(job, 5)]], [], []).ask) == {}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e12])
def test_a_memory_that_no_gpu_has_is_omitted(value: float) -> None:
    assert read_peaks(Window(0, 10), Answers([[one("1", value)]], [], []).ask) == {}


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.5, 9e18])
def test_a_share_that_is_none_counts_as_not_measured(value: float) -> None:
    found = read_peaks(Window(0, 10), Answers([[one("1", 5)]], [[one("1", value)]], []).ask)
    assert found == {(1, ""): JobPeak(5)}
