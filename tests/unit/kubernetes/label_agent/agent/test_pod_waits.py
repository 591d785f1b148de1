"""Waiting for pods: which pods the node's status names, and the devices that the kubelet is offered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.core.config.settings import AgentSettings, PodPolicy
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan as make
from aliquot.kubernetes.client.cancellable_wait import WaitEnd
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu import eviction, node_pods
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.eviction import EvictionResult, RemainingPod
from aliquot.kubernetes.gpu.gpu_operands import OPERANDS
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import pod_waits, steps
from aliquot.kubernetes.label_agent.agent.affected_devices import devices_to_free, devices_to_withhold, held_devices
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.pod_waits import PodWaiter
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, held_by_pods
from support.agent_observations import make_observation, node
from support.factory import with_instances
from unit.kubernetes.gpu.memory import pod

replace = msgspec.structs.replace
CHANGING = AgentStatus("pending", "Changing", "to create")
FULL = [f"1g.5gb@{n}" for n in range(7)]


class Actor:
    """Records reports, withheld devices and failures."""

    def __init__(self) -> None:
        self.failures: list[ConfigFailure] = []
        self.withheld: list[frozenset[str]] = []
        self.reported: list[str] = []
        self.released = 0
        self.superseded = asyncio.Event()
        self.publisher = self.offering = self
        self.informer = SimpleNamespace(api=self, name="n")

    async def can_i(self, verb: str, what: str, namespace: str) -> bool:
        return True

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        self.withheld.append(ids)
        return frozenset()

    def release(self) -> None:
        self.released += 1

    async def report(self, status: AgentStatus, o: object) -> None:
        self.reported.append(status.message)

    def client_namespaces(self) -> tuple[str, ...]:
        return ("gpu-operator",)

    def record_failure(self, failure: ConfigFailure, o: object, m: AgentMemory) -> AgentMemory:
        self.failures.append(failure)
        return m


@pytest.mark.parametrize(
    ("evicted", "failed"),
    [
        (EvictionResult(WaitEnd.DONE, gone=("a/b",)), []),
        (
            EvictionResult(WaitEnd.TIMED_OUT, remaining=(RemainingPod("a", "b", "why"), RemainingPod("a", "c", "why"))),
            ["2 of 2 pods did not leave: "],
        ),
        (EvictionResult(WaitEnd.SUPERSEDED, remaining=(RemainingPod("a", "b", "why"),)), []),
    ],
    ids=["gone", "stays", "superseded"],
)
def test_pods_are_asked_to_leave(evicted: EvictionResult, failed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "Cannot evict pod as it would violate the pod's disruption budget; The disruption budget keep needs 1"

    async def evict(
        *about: object, on_remaining: Callable[[tuple[RemainingPod, ...]], Awaitable[None]], **more: object
    ) -> EvictionResult:
        await on_remaining((RemainingPod("a", "b", reason),))
        return evicted

    monkeypatch.setattr(eviction, "evict", evict)
    actor, o = Actor(), make_observation("all-1g.5gb")
    o = replace(o, forced_plan=o.plan)
    step = steps.Evict((("a", "b"), ("a", "c")), False, CHANGING)
    m = asyncio.run(PodWaiter(cast(Any, actor)).wait(step, o, AgentMemory()))
    assert (m.waiting_since, m.waiting_for) == (o.clock, o.patience)
    assert [each.message[:26] for each in actor.failures] == [text[:26] for text in failed]
    assert (len(actor.withheld), actor.released) == (1, 1)
    assert actor.reported == [f"to create; waiting for a/b: {reason}"]


def test_operands_that_are_awaited_are_named_as_long_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, exporter = pod("plugin-x", namespace="gpu-operator"), pod("exporter-y", namespace="gpu-operator")

    async def await_gone(*about: object) -> node_pods.PodWaitResult:
        remain = cast(Callable[[tuple[Pod, ...]], Awaitable[None]], about[-1])
        for there in ((plugin, exporter), (plugin, exporter), (plugin,)):
            await remain(there)
        return node_pods.PodWaitResult(WaitEnd.SUPERSEDED)

    monkeypatch.setattr(node_pods, "await_gone", await_gone)
    monkeypatch.setattr(pod_waits, "EVERY_S", 0.0)
    actor = Actor()
    step = steps.AwaitOperands(OPERANDS, CHANGING)
    asyncio.run(PodWaiter(cast(Any, actor)).wait(step, make_observation("all-1g.5gb"), AgentMemory()))
    first, second = actor.reported
    assert first == "to create; waiting for GPU clients to end: gpu-operator/exporter-y, gpu-operator/plugin-x"
    assert second == "to create; waiting for GPU clients to end: gpu-operator/plugin-x"


def test_reports_do_not_flood_the_api_server() -> None:
    actor = Actor()
    report = pod_waits._WaitReport(cast(Any, actor), CHANGING, make_observation("all-1g.5gb"))

    async def write() -> None:
        for number in range(9):
            await report.write(str(number))

    asyncio.run(write())
    assert actor.reported == ["to create; 0"]


# -- devices that the kubelet is offered meanwhile


def _named(inventory: Inventory) -> Inventory:
    """Return two GPUs with seven instances each, ``a0`` to ``a6`` and ``b0`` to ``b6``."""

    def instance(letter: str, i: GpuInstance) -> GpuInstance:
        parts: tuple[ComputeInstance, ...] = tuple(
            replace(c, uuid=f"{letter}{i.place.start}") for c in i.compute_instances
        )
        return replace(i, compute_instances=parts)

    def named(letter: str, gpu: Gpu) -> Gpu:
        return replace(gpu, uuid=letter.upper(), instances=tuple(instance(letter, i) for i in gpu.instances))

    return replace(inventory, gpus=tuple(named(letter, gpu) for letter, gpu in zip("ab", inventory.gpus, strict=True)))


BARE = with_instances(with_instances(node("a100-sxm4-40gb*2"), 0, *FULL), 1, *FULL)
HERE = _named(BARE)


def waits(policy: PodPolicy, *held: str) -> Observation:
    """Return an observation of a node whose GPUs are all to be repartitioned, while pods hold these devices."""
    used = held_by_pods(HERE, [PodDeviceUse("default", each, "main", (each,)) for each in held])
    o = make_observation("all-7g.40gb", HERE, settings=AgentSettings(strategy="mixed", holders=policy))
    assert o.request is not None
    assert o.request.desired is not None
    forced = make(used, o.request.desired, Policy(held="force"))
    return replace(o, forced_plan=forced, held=held_devices(used))


def withheld(o: Observation, m: AgentMemory) -> set[str]:
    return set(devices_to_withhold(o, m))


def _all(letter: str) -> set[str]:
    return {f"{letter}{n}" for n in range(7)}


def test_everything_would_go() -> None:
    assert devices_to_free(waits("wait", "a0")) == _all("a") | _all("b")


def test_while_a_pod_is_waited_for_all_idle_devices_stay_in_use() -> None:
    o, m = waits("wait", "a0"), AgentMemory()
    assert withheld(o, m) == {"a0"}
    m = m.while_waiting(o)
    later = waits("wait", "a3")
    assert withheld(later, m) == {"a0", "a3"}, "a device that a pod has left is not allocated again"


def test_a_gpu_whose_holders_have_left_is_not_allocated() -> None:
    o = waits("wait", "a0", "b1")
    m = AgentMemory().while_waiting(o)
    assert withheld(waits("wait", "b1"), m) == _all("a") | {"b1"}


def test_an_evicted_pod_does_not_come_back_to_its_gpu() -> None:
    o = waits("drain", "a0")
    assert withheld(o, AgentMemory()) == _all("a")
    assert withheld(waits("drain", "b4"), AgentMemory().while_waiting(o)) == _all("a") | _all("b")


def test_another_wait_begins_afresh() -> None:
    m = AgentMemory().while_waiting(waits("wait", "a0"))
    other = waits("drain", "b0")
    assert withheld(other, m) == _all("b")
    actor = Actor()
    PodWaiter(cast(Any, actor)).withhold(other, m)
    assert (actor.released, [set(each) for each in actor.withheld]) == (1, [_all("b")])
    PodWaiter(cast(Any, actor)).withhold(other, m.while_waiting(other))
    assert actor.released == 1
