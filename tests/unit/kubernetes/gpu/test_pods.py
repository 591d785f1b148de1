"""Waiting for operand pods and evicting holders: limits, refusals, budgets, pods that return."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.cancellable_wait import WaitEnd, WaitLimit
from aliquot.kubernetes.client.errors import ApiUnavailableError, ForbiddenError
from aliquot.kubernetes.gpu.eviction import evict
from aliquot.kubernetes.gpu.gpu_operands import OPERANDS
from aliquot.kubernetes.gpu.managed_label import MIG
from aliquot.kubernetes.gpu.node_pods import await_gone, delete_validators, operand_matcher
from unit.kubernetes.gpu.memory import NODE, Pods, pod

SOON = WaitLimit(0.4, 0.01)
LONG = WaitLimit(20.0, 0.01)
OURS = operand_matcher(OPERANDS, ("gpu-operator",))
CLIENT = {"nvidia.com/gpu.deploy.client": "true"}
PLUGIN = pod(
    "plugin", namespace="gpu-operator", labels={"app": "nvidia-device-plugin-daemonset"}, owner="DaemonSet/plugin"
)
UNAVAILABLE = ApiUnavailableError("the API server did not answer")


def test_which_pods_are_awaited() -> None:
    nvsm = {"nvidia.com/gpu.deploy.nvsm": "true"}
    awaited = [PLUGIN, pod("x", owner="DaemonSet/x", selector=CLIENT), pod("n", owner="DaemonSet/n", selector=nvsm)]
    others = [
        pod("same-label", labels={"app": "nvidia-dcgm"}),
        pod("by-hand", selector=CLIENT),
        pod("other", namespace="gpu-operator", labels={"app": "nvidia-operator-validator"}, owner="DaemonSet/v"),
    ]
    assert [p.metadata.name for p in (*awaited, *others) if OURS(p)] == ["plugin", "x", "n"]
    without = operand_matcher(OPERANDS[:1], ("gpu-operator",))
    assert [p.metadata.name for p in (*awaited, *others) if without(p)] == ["plugin"]


def test_no_holder_costs_one_request() -> None:
    api = Pods(pod("user"), msgspec.structs.replace(PLUGIN, status=pod("x", phase="Failed").status))
    began = time.monotonic()
    waited = asyncio.run(await_gone(api, NODE, OURS, WaitLimit(300.0, 1.0)))
    assert waited.gone
    assert api.calls == ["list"]
    assert time.monotonic() - began < 0.5


def test_pods_that_take_a_while() -> None:
    async def run() -> bool:
        api = Pods(PLUGIN, ends_s=0.05)
        await api.delete(type(PLUGIN), "plugin", "gpu-operator")
        waited = await await_gone(api, NODE, OURS, LONG)
        return waited.gone and not api.pods

    assert asyncio.run(run())


def test_a_cache_that_is_ahead_of_itself_is_not_believed() -> None:
    # The first read finds a pod, but the server's cache has none: the agent reads the store itself.
    api = Pods(PLUGIN)
    api.cache = ()
    waited = asyncio.run(await_gone(api, NODE, OURS, SOON))
    assert waited.end is WaitEnd.TIMED_OUT
    assert waited.remaining == (PLUGIN,)
    assert api.calls[:4] == ["list", "list 0", "list", "list 0"]


def test_a_wait_that_ends_before_the_store_has_answered_names_who_was_there() -> None:
    # A result of the cache only is not reported either.

    class Slow(Pods):
        async def list(self, *words: Any, **given: Any) -> Any:
            if "list 0" in self.calls:
                await asyncio.Event().wait()
            return await super().list(*words, **given)

    api = Slow(PLUGIN)
    api.cache = ()
    waited = asyncio.run(await_gone(api, NODE, OURS, SOON))
    assert (waited.end, waited.remaining) == (WaitEnd.TIMED_OUT, (PLUGIN,))


def test_who_remains_is_named() -> None:
    api = Pods(PLUGIN, *(pod(f"x{n}", owner="DaemonSet/x", selector=CLIENT) for n in range(9)))
    waited = asyncio.run(await_gone(api, NODE, OURS, SOON))
    assert waited.end is WaitEnd.TIMED_OUT
    assert len(waited.remaining) == 10
    assert waited.sentence.startswith("still there: gpu-operator/plugin, team/x0")
    assert waited.sentence.endswith("and 2 more")


def test_an_api_server_that_is_unavailable_is_asked_again() -> None:
    api = Pods()
    api.failing = [UNAVAILABLE] * 3
    assert asyncio.run(await_gone(api, NODE, OURS, LONG)).gone
    assert len(api.calls) == 4


def test_an_api_server_that_stays_unavailable_is_reported() -> None:
    api = Pods()
    api.failing = [UNAVAILABLE] * 1000
    with pytest.raises(ApiUnavailableError):
        asyncio.run(await_gone(api, NODE, OURS, SOON))


def test_a_missing_right_is_reported_at_once() -> None:
    api = Pods()
    api.failing = [ForbiddenError("no")]
    with pytest.raises(ForbiddenError):
        asyncio.run(await_gone(api, NODE, OURS, LONG))
    api = Pods(pod("a"), pod("b"))
    api.failing = [ForbiddenError("no")]
    with pytest.raises(ForbiddenError):
        asyncio.run(evict(api, [("team", "a"), ("team", "b")], LONG))


def test_a_request_that_hangs_is_bounded() -> None:
    api = Pods(PLUGIN)
    api.hanging = True
    waited = asyncio.run(await_gone(api, NODE, OURS, SOON))
    assert (waited.end, waited.remaining) == (WaitEnd.TIMED_OUT, ())
    assert "unknown" in waited.sentence


@pytest.mark.parametrize("hanging", [False, True])
def test_a_newer_request_ends_the_wait_at_once(hanging: bool) -> None:
    async def run() -> tuple[WaitEnd, WaitEnd, float]:
        event = asyncio.Event()
        bound = WaitLimit(300.0, 60.0, event)
        api = Pods(PLUGIN, pod("user"), ends_s=None)
        api.hanging = hanging
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.05, event.set)
        waited = await await_gone(api, NODE, OURS, bound)
        evicted = await evict(api, [("team", "user")], bound, force=True)
        assert "delete user 0" not in api.calls
        return waited.end, evicted.end, time.monotonic() - began

    first, second, seconds = asyncio.run(run())
    assert first is second is WaitEnd.SUPERSEDED
    assert seconds < 2.0


def test_validators_are_deleted_by_label_and_namespace() -> None:
    cuda, plugin = ({"app": app} for app in MIG.validators_before)
    api = Pods(
        pod("cuda", namespace="gpu-operator", labels=cuda, phase="Succeeded"),
        pod("plugin-check", namespace="gpu-operator", labels=plugin),
        pod("mine", labels=cuda),
        pod("far", namespace="gpu-operator", labels=cuda, node="gpu-2"),
    )
    api.failing = [UNAVAILABLE]
    deleted = asyncio.run(delete_validators(api, NODE, MIG.validators_before, ("gpu-operator",), LONG))
    assert deleted == ("gpu-operator/cuda", "gpu-operator/plugin-check")
    assert {k[1] for k, p in api.pods.items() if p.metadata.deletion_timestamp is None} == {"mine", "far"}
    assert asyncio.run(delete_validators(Pods(), NODE, MIG.validators_before, ("gpu-operator",), LONG)) == ()


def test_eviction_waits_until_the_pod_is_gone() -> None:
    api = Pods(pod("a"), pod("b", phase="Succeeded"), pod("elsewhere", node="gpu-2"), ends_s=0.05)
    names = [("team", "a"), ("team", "a"), ("team", "b"), ("team", "elsewhere"), ("team", "never-was")]
    result = asyncio.run(evict(api, names, LONG, node=NODE))
    assert result.end is WaitEnd.DONE
    assert result.gone == ("team/a", "team/b", "team/elsewhere", "team/never-was")
    assert [call for call in api.calls if call.startswith("evict")] == ["evict a"]


def test_a_budget_is_respected_and_named() -> None:
    api = Pods(pod("a"), pod("b"))
    api.budget = {"a"}
    result = asyncio.run(evict(api, [("team", "a"), ("team", "b")], WaitLimit(0.3, 0.01)))
    assert result.gone == ("team/b",)
    assert "The disruption budget web needs 2 healthy pods" in str(result.remaining[0])
    assert ("team", "a") in api.pods
    assert "delete a" not in " ".join(api.calls)


def test_a_budget_that_frees_up_lets_the_pod_go() -> None:
    async def run() -> int:
        api = Pods(pod("a"))
        api.budget = {"a"}
        asyncio.get_running_loop().call_later(0.1, api.budget.clear)
        result = await evict(api, [("team", "a")], LONG)
        assert result.gone == ("team/a",)
        return api.calls.count("evict a")

    assert 2 <= asyncio.run(run()) <= 6


def test_force_deletes_what_remains_without_grace() -> None:
    api = Pods(pod("budget"), pod("slow"), ends_s=None)
    api.budget = {"budget"}
    result = asyncio.run(evict(api, [("team", "budget"), ("team", "slow")], WaitLimit(0.2, 0.01), force=True))
    assert result.end is WaitEnd.DONE
    assert result.gone == ("team/budget", "team/slow")
    assert not api.pods
    assert {"delete budget 0", "delete slow 0"} <= set(api.calls)


def test_without_force_a_slow_pod_is_reported() -> None:
    result = asyncio.run(evict(Pods(pod("slow"), ends_s=None), [("team", "slow")], WaitLimit(0.2, 0.01)))
    assert "being deleted and has not ended yet" in result.remaining[0].reason


@pytest.mark.parametrize("force", [False, True])
def test_pods_that_would_come_back(force: bool) -> None:
    api = Pods(pod("d", owner="DaemonSet/logs"), pod("s", owner="Node/gpu-1"))
    result = asyncio.run(evict(api, [("team", "d"), ("team", "s")], SOON, force=force))
    reasons = {stays.name: stays.reason for stays in result.remaining}
    assert "static pod" in reasons["s"]
    assert ("team", "s") in api.pods
    if force:
        assert result.gone == ("team/d",)
    else:
        assert reasons["d"] == "DaemonSet logs would create it again at once"
        assert [call for call in api.calls if not call.startswith("get")] == []


def test_a_pod_made_again_under_the_same_name_is_another() -> None:
    # In a StatefulSet, the agent neither waits for the successor nor evicts it.

    async def run() -> tuple[tuple[str, ...], list[str]]:
        api = Pods(pod("db-0"))
        successor = pod("db-0")
        metadata = msgspec.structs.replace(successor.metadata, uid="second")
        api.again = {"db-0": msgspec.structs.replace(successor, metadata=metadata)}
        result = await evict(api, [("team", "db-0")], LONG)
        assert api.pods[("team", "db-0")].metadata.uid == "second"
        assert api.pods[("team", "db-0")].metadata.deletion_timestamp is None
        return result.gone, api.calls

    gone, calls = asyncio.run(run())
    assert gone == ("team/db-0",)
    assert calls.count("evict db-0") == 1


def test_a_pod_replaced_between_the_look_and_the_eviction_is_not_hit() -> None:
    async def run() -> None:
        api = Pods(pod("db-0"))
        first = api.pods[("team", "db-0")]
        real_evict = api.evict

        async def replaced(name: str, namespace: str | None = None, **options: object) -> None:
            metadata = msgspec.structs.replace(first.metadata, uid="second")
            api.pods[first.key] = msgspec.structs.replace(first, metadata=metadata)
            await real_evict(name, namespace, uid=str(options["uid"]))

        api.evict = replaced  # type: ignore[method-assign]
        result = await evict(api, [("team", "db-0")], LONG)
        assert result.gone == ("team/db-0",)
        assert api.pods[first.key].metadata.deletion_timestamp is None

    asyncio.run(run())


def test_a_pod_that_is_leaving_already_is_awaited() -> None:
    async def run() -> list[str]:
        api = Pods(pod("a"), ends_s=0.05)
        await api.delete(type(PLUGIN), "a", "team")
        assert (await evict(api, [("team", "a")], LONG)).gone == ("team/a",)
        return api.calls

    assert "evict a" not in asyncio.run(run())


def test_eviction_goes_on_when_the_api_server_comes_back() -> None:
    api = Pods(pod("a"))
    api.failing = [UNAVAILABLE, UNAVAILABLE]
    assert asyncio.run(evict(api, [("team", "a")], LONG)).gone == ("team/a",)
