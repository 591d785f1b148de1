"""The simulator and the raw tables return the same answers for any sequence of calls."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from system.sim.driver_oracle import Oracle
from system.sim.memory import Memory

BOARDS = {
    "a100-40gb": "a100-sxm4-40gb",
    "a100-80gb": "a100-sxm4-80gb",
    "a30-24gb": "a30",
    "h100-80gb-pcie": "h100-pcie",
    "h100-96gb": "gh200-480gb",
    "b200-180gb": "b200",
    "rtx-pro-6000-96gb": "rtx-pro-6000",
}
QUARTERS = ("a30-24gb", "rtx-pro-6000-96gb")


class Calls(RuleBasedStateMachine):
    """Random creates, destroys and queries on a board."""

    @initialize(family=st.sampled_from(sorted(BOARDS)), swapped=st.booleans())
    def board(self, family: str, swapped: bool) -> None:
        swapped = swapped and family not in QUARTERS
        self.oracle = Oracle(family, swapped)
        self.node = Memory(BOARDS[family] + (":swapped" if swapped else ""))

    @rule(pick=st.integers(0, 99))
    def create_anywhere(self, pick: int) -> None:
        profile = self.oracle.ids[pick % len(self.oracle.ids)]
        assert self.node.create(profile) == self.oracle.create(profile, None)

    @rule(pick=st.integers(0, 99), start=st.integers(0, 12))
    def create_at(self, pick: int, start: int) -> None:
        profile = self.oracle.ids[pick % len(self.oracle.ids)]
        starts = self.oracle.row(profile)["placements"]["starts"]
        start = starts[start % len(starts)] if start % 3 else start
        size = self.oracle.row(profile)["placements"]["size"]
        assert self.node.create(profile, (start, size)) == self.oracle.create(profile, start)

    @rule(number=st.integers(0, 14))
    def destroy(self, number: int) -> None:
        assert -self.node.ask(f"GpuInstanceDestroy 0 {number} -1")[0] == self.oracle.destroy(number)

    @rule(pick=st.integers(0, 99))
    def destroy_one_that_exists(self, pick: int) -> None:
        if self.oracle.there:
            number = sorted(self.oracle.there)[pick % len(self.oracle.there)]
            assert self.node.ask(f"GpuInstanceDestroy 0 {number} -1") == [0]
            self.oracle.destroy(number)

    @rule(pick=st.integers(0, 99))
    def room(self, pick: int) -> None:
        profile = self.oracle.ids[pick % len(self.oracle.ids)]
        assert self.node.free(profile) == self.oracle.remaining(profile)

    @invariant()
    def the_same_is_there(self) -> None:
        if not hasattr(self, "oracle"):
            return
        listed = {}
        for profile in self.oracle.ids:
            for number in self.node.ask(f"DeviceGetGpuInstances 0 -1 -1 {profile}")[1:]:
                listed[number] = (profile, self.node.place(number))
        wanted = {
            n: (row["id"], f"{start}:{row['placements']['size']}") for n, (row, start) in self.oracle.there.items()
        }
        assert listed == wanted


def test_random_calls_agree_with_the_raw_tables() -> None:
    few = settings(max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Calls, settings=few)


def test_every_state_of_the_a100_that_calls_can_reach() -> None:
    # There are 298 placed states of the five base profiles, each with every answer of ``remaining``.
    base = (19, 14, 9, 5, 0)
    oracle, node = Oracle("a100-40gb", False), Memory("a100-sxm4-40gb")
    seen: set[frozenset[tuple[int, int]]] = set()

    def walk(there: frozenset[tuple[int, int]]) -> None:
        if there in seen:
            return
        seen.add(there)
        for profile in base:
            assert node.free(profile) == oracle.remaining(profile)
            for start in oracle.row(profile)["placements"]["starts"]:
                size = oracle.row(profile)["placements"]["size"]
                number = oracle.create(profile, start)
                assert node.create(profile, (start, size)) == number
                if number >= 0:
                    walk(there | {(profile, start)})
                    oracle.destroy(number)
                    assert node.ask(f"GpuInstanceDestroy 0 {number} -1") == [0]

    walk(frozenset())
    assert len(seen) == 298


@pytest.mark.parametrize("family", sorted(BOARDS))
def test_filling_with_one_profile_by_default_places(family: str) -> None:
    for swapped in (False, True):
        if swapped and family in QUARTERS:
            continue
        for profile in Oracle(family, swapped).ids:
            oracle = Oracle(family, swapped)
            node = Memory(BOARDS[family] + (":swapped" if swapped else ""))
            while (made := oracle.create(profile, None)) >= 0:
                assert node.create(profile) == made
            assert node.create(profile) == made == -23
