"""Hosts with one CLOUD record per layout: the choice of the record that opens for a job, and reasons against it."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.slurm.client.models import Gres, SlurmNode
from aliquot.slurm.controller.cloud_switch import node_states
from aliquot.slurm.controller.decide import decide
from aliquot.slurm.controller.job_demand import JobDemand, JobQueue
from aliquot.slurm.controller.models import SlurmDecision, SlurmState
from aliquot.slurm.controller.settings import Limits, Siblings, SlurmControllerSettings
from aliquot.slurm.controller.sibling_groups import SiblingGroup, SiblingSwap, group

NOW = 1000.0
LIMITS = Limits(idle_s=10, between_s=0)
OFF = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})


def node(
    name: str, kind: str, count: int, *, drained: bool = True, reason: str = "aliquot: its GPUs are others'"
) -> SlurmNode:
    return SlurmNode(
        name=name,
        states=OFF | {"DRAIN"} if drained else OFF,
        reason=reason if drained else "",
        gres=(Gres("gpu", kind, count),),
        partitions=("all",),
        cpus=8,
        memory_mib=1000,
    )


THREES = node("h1-3g", "a100_3g.20gb", 2, drained=False)
ONES = node("h1-1g", "a100_1g.5gb", 7)


def made(
    *nodes: SlurmNode, busy: dict[str, int] | None = None, target: str = "h1-3g", idle: float = 60
) -> SiblingGroup:
    siblings = Siblings("h1", tuple(n.name for n in nodes), LIMITS)
    found = group(siblings, {n.name: n for n in nodes}, busy or {}, target)
    assert found is not None
    return replace(found, idle_since=NOW - idle)


def ask(found: SiblingGroup, kind: str, busy: dict[str, int] | None = None, count: int = 1) -> SlurmDecision:
    state = SlurmState(tuple(node_states([found], busy or {})), groups=(found,))
    want = JobDemand(1, {kind: count}, partitions=("all",), priority=1)
    return decide(state, JobQueue((want,)), SlurmControllerSettings(()), NOW)


def test_a_powered_down_record_that_is_open_has_what_is_recorded() -> None:
    decision = ask(made(THREES, ONES), "a100_3g.20gb")
    assert decision.verdicts[0].state == "covered"
    assert not decision.swaps


def test_another_record_is_opened_for_a_job() -> None:
    decision = ask(made(THREES, ONES), "a100_1g.5gb", count=7)
    assert decision.swaps == (SiblingSwap("h1", "h1-1g", (1,)),)
    assert decision.verdicts[0].state == "cut"


def test_why_none_is() -> None:
    def why(found: SiblingGroup, kind: str = "a100_1g.5gb", busy: dict[str, int] | None = None) -> str:
        decision = ask(found, kind, busy)
        assert not decision.swaps
        assert decision.verdicts[0].state == "waits"
        return decision.verdicts[0].why[0]

    assert "1 job has resources on h1-3g" in why(made(THREES, ONES, busy={"h1-3g": 1}), busy={"h1-3g": 1})
    assert "idle for only 5 s" in why(made(THREES, ONES, idle=5))
    assert "drained h1-1g (fan)" in why(made(THREES, replace(ONES, reason="fan")))
    assert "none of its records suits" in why(made(THREES, ONES), "a100_7g.40gb")
    assert "untouched" in why(replace(made(THREES, ONES), untouched=True))


def test_while_it_is_being_opened_nothing_else_is_begun() -> None:
    found = made(replace(THREES, states=OFF | {"DRAIN"}, reason="aliquot: x"), ONES, target="h1-1g")
    assert found.action.verb != "done"
    assert ask(found, "a100_1g.5gb").verdicts[0].sentence == "the controller is opening h1-1g, which suits it"
    decision = ask(found, "a100_3g.20gb")
    assert not decision.swaps
    assert "h1-1g is being opened there" in decision.verdicts[0].why[0]


def test_without_a_target_the_record_that_is_open_is_it() -> None:
    assert made(THREES, ONES, target="").target == "h1-3g"
    both = replace(ONES, states=OFF, reason="")
    assert made(THREES, both, target="", busy={"h1-1g": 1}).target == "h1-1g", "the one with jobs"
    assert group(Siblings("h2", ("x",)), {}, {}, "") is None
