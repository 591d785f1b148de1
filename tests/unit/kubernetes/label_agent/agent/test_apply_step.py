"""Results of an attempt: another change in progress, a changed node, an error, a new pod."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.engine.ports import ApplyStatus
from aliquot.core.model.actions import Create
from aliquot.errors import AliquotError, BlockedError, DriverHangsError, LockedError, StalePlanError
from aliquot.kubernetes.gpu.change_report import ChangeReport, Rollback
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import apply_step, steps
from aliquot.kubernetes.label_agent.agent.apply_step import PlanApplier
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory
from aliquot.kubernetes.node_agent.held_devices import devices_to_destroy
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.agent_observations import make_observation, node
from support.factory import with_instances

FULL = [f"1g.5gb@{n}" for n in range(7)]
CHANGING = AgentStatus("pending", "Changing", "to create")


class Actor:
    """An actor whose hardware and API answer as a test requires."""

    def __init__(self, error: AliquotError | None = None) -> None:
        self.error = error
        self.failures: list[ConfigFailure] = []
        self.withheld: list[frozenset[str]] = []
        self.metrics = LabelAgentMetrics("n")
        self.superseded = asyncio.Event()
        self.hardware = self.publisher = self.offering = self
        self.informer = SimpleNamespace(api=self, name="n")
        self.uses = None

    async def apply(self, plan: object, report: object) -> Any:
        assert self.error is not None
        raise self.error

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        self.withheld.append(ids)
        return frozenset()

    def record_failure(self, failure: ConfigFailure, o: object, m: AgentMemory) -> AgentMemory:
        self.failures.append(failure)
        return m


@pytest.mark.parametrize(
    ("error", "locked_by", "failed"),
    [
        (LockedError("busy", holder="process 7 (x)"), "process 7 (x)", []),
        (LockedError("busy"), "another process", []),
        (StalePlanError("moved"), "", []),
        (BlockedError("no"), "", ["no"]),
    ],
    ids=["locked", "locked by whom", "moved", "blocked"],
)
def test_why_nothing_was_applied(error: AliquotError, locked_by: str, failed: list[str]) -> None:
    actor, o = Actor(error), make_observation("all-1g.5gb")
    assert o.plan is not None

    async def play() -> AgentMemory:
        return await PlanApplier(cast(Any, actor)).apply(steps.Apply(o.plan, CHANGING), o, AgentMemory())  # type: ignore[arg-type]

    assert asyncio.run(play()) == AgentMemory(locked_by=locked_by)
    assert [each.message for each in actor.failures] == failed


def test_a_pod_that_was_given_a_device_meanwhile_stops_the_attempt() -> None:
    o = make_observation("all-3g.20gb", with_instances(node("a100-sxm4-40gb"), 0, *FULL))
    assert o.plan is not None
    assert o.inventory is not None
    ending = sorted(devices_to_destroy(o.plan, o.inventory))
    assert ending
    given = PodDeviceUse("a", "b", "main", (ending[0],))
    asked: list[list[PodDeviceUse]] = []

    class StubInformer:
        async def living_uses(self, found: list[PodDeviceUse]) -> list[PodDeviceUse]:
            asked.append(found)
            return found

    async def given_meanwhile(*uses: PodDeviceUse, policy: str = "refuse") -> PodDeviceUse | None:
        async def all_uses() -> list[PodDeviceUse]:
            return list(uses)

        actor: Any = SimpleNamespace(publisher=SimpleNamespace(uses=all_uses), informer=StubInformer())
        held = msgspec.structs.replace(o.holder_policy, policy=policy)
        seen: Any = SimpleNamespace(holder_policy=held, inventory=o.inventory)
        assert o.plan is not None
        return await PlanApplier(actor)._newly_given_device(o.plan, seen)

    other = PodDeviceUse("a", "c", "main", ("another",))
    assert asyncio.run(given_meanwhile(other, given)) == given
    assert asyncio.run(given_meanwhile(other)) is None
    assert asyncio.run(given_meanwhile(given, policy="force")) is None
    assert asked == [[given]], "the API server is queried only about an allocation"


def test_a_plan_that_destroys_nothing_does_not_need_kubelet() -> None:
    o = make_observation("all-1g.5gb")
    assert o.plan is not None
    assert o.plan.created
    creating = msgspec.structs.replace(o.plan, actions=tuple(a for a in o.plan.actions if isinstance(a, Create)))

    async def no_answer() -> list[PodDeviceUse]:
        raise BlockedError("no kubelet")

    actor: Any = SimpleNamespace(publisher=SimpleNamespace(uses=no_answer))
    assert asyncio.run(PlanApplier(actor)._newly_given_device(creating, o)) is None


def test_a_driver_that_hangs_meanwhile_is_reported_once_and_its_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_step, "HANG_POLL_S", 0.01)
    o = make_observation("all-1g.5gb")
    assert o.plan is not None
    reports: list[tuple[str, str]] = []
    applied: list[float] = []
    hangs: list[DriverHangsError | None] = [None, DriverHangsError("it hangs"), None]
    monkeypatch.setattr("aliquot.foundation.driver_calls.current_hang", lambda: hangs[0])

    class Slow(Actor):
        async def apply(self, plan: object, report: object) -> Any:
            assert o.inventory is not None
            await asyncio.sleep(0.1)
            while len(hangs) > 1:
                hangs.pop(0)
                await asyncio.sleep(0.1)
            return ApplyOutcome("done", o.inventory)

        async def report(self, status: AgentStatus, o: object) -> None:
            reports.append((status.state, status.message))

    actor = Slow()
    metrics = SimpleNamespace(
        changes=LabelAgentMetrics("n").changes, record_apply=lambda outcome, seconds: applied.append(seconds)
    )
    actor.metrics = cast(Any, metrics)
    m = asyncio.run(PlanApplier(cast(Any, actor)).apply(steps.Apply(o.plan, CHANGING), o, AgentMemory(failures=2)))
    assert reports == [("failed", "it hangs"), ("pending", "to create")]
    assert (m.last_change_for, m.failures, m.failed) == (o.digest, 0, None)
    assert m.last_report == ChangeReport("all-1g.5gb", round(applied[0], 1))
    assert 0.2 < applied[0] < 60


@pytest.mark.parametrize(("status", "ended"), [("partial", "partial"), ("undone", "undone"), ("stopped", "undone")])
def test_an_apply_that_failed_says_for_programs_what_became_of_it(status: ApplyStatus, ended: Rollback) -> None:
    actor, o = Actor(), make_observation("all-1g.5gb")
    PlanApplier(cast(Any, actor))._failed_apply(status, AliquotError("boom"), (), o, AgentMemory())
    (failure,) = actor.failures
    assert failure.change == ChangeReport(outcome=ended)
