"""Slurm controller laws over a toy cluster: it touches no job, respects its limits, and becomes stable."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.selection import laws
from support.slurmtoy import Limits, toy

START = ("", "7g.40gb", "3g.20gb*2", "1g.5gb*7")
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
LARGEST = {"1g.5gb": 7, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1}


@st.composite
def jobs(draw: st.DrawFn, nodes: int) -> dict[str, object]:
    profile = draw(st.sampled_from(PROFILES))
    return {
        "profile": profile,
        "count": draw(st.integers(1, LARGEST[profile])),
        "nodes": draw(st.integers(1, nodes)),
        "seconds": float(draw(st.sampled_from((3, 10, 40)))),
        "priority": draw(st.integers(1, 3)),
    }


@laws(60)
@given(st.data())
def test_every_job_that_can_be_served_is_and_nothing_flaps(data: st.DataObject) -> None:
    start = data.draw(st.lists(st.sampled_from(START), min_size=1, max_size=3))
    cluster = toy(*start)
    asked = data.draw(st.lists(jobs(len(start)), min_size=1, max_size=8))
    times = data.draw(st.lists(st.integers(0, 12), min_size=len(asked), max_size=len(asked)))
    for tick in range(250):
        for job, when in zip(asked, times, strict=True):
            if when == tick:
                cluster.submit(str(job["profile"]), **{k: v for k, v in job.items() if k != "profile"})
        cluster.step()  # asserts that no record with a job is repartitioned
        if tick > 12 and all(j.done for j in cluster.jobs.values()):
            break
    assert all(j.done for j in cluster.jobs.values()), cluster.jobs
    most = sum(int(str(job["nodes"])) for job in asked)
    assert len(cluster.trace) <= most, "more changes than requested slices on nodes"
    before = len(cluster.trace)
    for _ in range(5):
        decision = cluster.step()
    assert not decision.repartitions
    assert len(cluster.trace) == before, "nothing is repartitioned without pending jobs"


@laws(30)
@given(st.data())
def test_limits_hold_whatever_pends(data: st.DataObject) -> None:
    limits = Limits(
        idle_s=data.draw(st.sampled_from((0.0, 12.0))),
        between_s=data.draw(st.sampled_from((0.0, 60.0))),
        per_hour=data.draw(st.integers(0, 3)),
    )
    cluster = toy(*data.draw(st.lists(st.sampled_from(START), min_size=1, max_size=3)), limits=limits)
    cluster.settings = cluster.settings.__class__(cluster.settings.hosts, per_hour=4, at_once=2)
    # The limits share the changes with another user, who waits here for more nodes than there are.
    cluster.submit("7g.40gb", nodes=len(cluster.nodes) + 1, user="bob")
    for _ in range(60):
        if data.draw(st.booleans()):
            cluster.submit(data.draw(st.sampled_from(PROFILES)), seconds=3.0)
        decision = cluster.step(10.0)
        assert len(decision.repartitions) <= 2
    for name in cluster.nodes:
        times = [when for when, record in cluster.trace if record == name]
        assert len(times) <= limits.per_hour
        assert all(b - a >= limits.between_s for a, b in pairwise(times))
    assert len(cluster.trace) <= 4
