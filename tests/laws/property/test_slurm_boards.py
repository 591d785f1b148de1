"""Slurm controller laws over slot boards: no slot of a job changes, free devices stay for whom they suit, and what is
chosen serves the jobs that it names.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.planner.node_layout import find_layout
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.models import Repartition, SlurmNodeState
from support.selection import laws
from support.slurmboards import FAMILY, SLOTS, board, decided, placed, want

LAYOUTS = ("", "7g.40gb@0", "3g.20gb@0,3g.20gb@4", "3g.20gb@4,2g.10gb@0", "1g.5gb@0,1g.5gb@1,2g.10gb@2,3g.20gb@4")
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")


@st.composite
def boards(draw: st.DrawFn, name: str) -> SlurmNodeState:
    gpus = draw(st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=2))
    devices = [SLOTS * n + start for n, text in enumerate(gpus) for _, start in placed(text)]
    used = draw(st.sets(st.sampled_from(devices))) if devices else set()
    return board(*gpus, used=used, name=name)


@st.composite
def demands(draw: st.DrawFn, job: int) -> JobDemand:
    kind, copies = draw(st.sampled_from(PROFILES)), draw(st.integers(1, 4))
    return want(job, kind, copies, priority=draw(st.integers(1, 3)), user=draw(st.sampled_from(("ada", "eve"))))


@laws(60)
@given(st.data())
def test_a_board_serves_the_queue_and_touches_no_job(data: st.DataObject) -> None:
    states = [data.draw(boards(f"n{n}")) for n in range(data.draw(st.integers(1, 2)))]
    queue = [data.draw(demands(job)) for job in range(1, data.draw(st.integers(2, 5)))]
    decision = decided(states, *queue)
    by_name, by_job = {each.name: each for each in states}, {each.job: each for each in queue}
    served: Counter[int] = Counter()
    for repartition in decision.repartitions:
        state = by_name[repartition.node_name]
        _no_job_is_touched(state, repartition)
        needed = sum((_devices(by_job[job], n) for job, n in repartition.copies.items()), Counter[str]())
        assert not needed - Counter(repartition.offered), "the layout has the devices of the jobs that it is for"
        served.update(repartition.copies)
    assert all(n <= by_job[job].copies for job, n in served.items())
    _first_is_served(states, min(queue, key=lambda demand: demand.rank), served)


def _no_job_is_touched(state: SlurmNodeState, repartition: Repartition) -> None:
    for gpu in state.gpus:
        if gpu.pci in repartition.placements:
            assert not gpu.locked
            assert gpu.fixed <= set(repartition.placements[gpu.pci] or ())


def _first_is_served(states: list[SlurmNodeState], first: JobDemand, served: Counter[int]) -> None:
    """Assert that the most important job has as many copies as any boards could give it, at once or with a change."""
    (need,) = [first.need]
    possible = sum(sum(find_layout(state.gpus, [need] * first.copies).met) for state in states)
    free = sum(state.free[kind] for state in states for kind in need)
    assert served[first.job] + free >= min(first.copies, possible)


def _devices(demand: JobDemand, copies: int) -> Counter[str]:
    return Counter({kind: n * copies for kind, n in demand.need.items()})


assert set(PROFILES) <= set(FAMILY.by_name)
