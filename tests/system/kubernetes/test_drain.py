"""Pausing, waiting and draining on a real API server and on the stand-in, through the real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest

from aliquot.kubernetes.client.cancellable_wait import WaitEnd, WaitLimit
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiUnavailableError, ConflictError, ForbiddenError
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.eviction import evict
from aliquot.kubernetes.gpu.gpu_operands import OPERANDS, NodeMarks, NodePatch, pause, restore
from aliquot.kubernetes.gpu.managed_label import MIG
from aliquot.kubernetes.gpu.node_patch import change_node, node_marks
from aliquot.kubernetes.gpu.node_pods import (
    await_gone,
    delete_pod,
    delete_validators,
    operand_matcher,
)
from support.cluster import Cluster

T = TypeVar("T")
NODE = "gpu-1"
OPERATOR = "gpu-operator"
SOON, LONG = WaitLimit(1.5, 0.1), WaitLimit(30.0, 0.1)
PLUGIN, DCGM = names.DEPLOY_PREFIX + "device-plugin", names.DEPLOY_PREFIX + "dcgm"


def node(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


def pod(name: str, namespace: str = "team", *, on: str = NODE, grace_s: int = 0, **metadata: Any) -> dict[str, Any]:
    """Build a running, ready pod with the given metadata and node selector."""
    spec: dict[str, Any] = {
        "nodeName": on,
        "terminationGracePeriodSeconds": grace_s,
        "containers": [{"name": "main", "image": "example.org/x"}],
    }
    if selector := metadata.pop("selector", None):
        spec["nodeSelector"] = selector
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def daemon(name: str) -> list[dict[str, Any]]:
    """Return the owner references of a pod of a DaemonSet."""
    return [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": "1-2-3", "controller": True}]


def budget(allowed: int, *, namespace: str = "team") -> dict[str, Any]:
    """Build the budget for pods with ``app: web``, as the disruption controller leaves it."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
            "conditions": [],
        },
    }


def ask(cluster: Cluster, work: Callable[[Api], Awaitable[T]], *, account: str | None = None) -> T:
    async def main() -> T:
        async with Api.connect(str(cluster.kubeconfig(OPERATOR, account))) as api:
            return await work(api)

    return asyncio.run(main())


@asynccontextmanager
async def kubelet(api: Api, *, deaf_to: tuple[str, ...] = ()) -> AsyncIterator[None]:
    """Simulate the kubelet of the node: pods that are being deleted end and go, except for some."""

    async def play() -> None:
        while True:
            for each in await api.list(Pod, "*", fields=f"spec.nodeName={NODE}"):
                if each.metadata.deletion_timestamp and each.name not in deaf_to:
                    await delete_pod(api, each, grace_s=0)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def environment(cluster: Cluster) -> Cluster:
    """Build a node in a cluster with the namespaces of these tests."""
    for name in ("team", OPERATOR):
        cluster.namespace(name)
    cluster.apply([node(**{PLUGIN: "true", DCGM: "false"})])
    return cluster


def test_a_pause_is_one_request_and_restore_undoes_it(environment: Cluster) -> None:
    async def work(api: Api) -> tuple[NodeMarks, NodeMarks, NodeMarks]:
        before = node_marks(await api.get(Node, NODE))
        pausing = await change_node(api, NODE, lambda now: pause(now, OPERANDS, requested="w", now=1.5, cordon=True))
        await change_node(api, NODE, restore)
        return before, node_marks(pausing), node_marks(await api.get(Node, NODE))

    before, during, after = ask(environment, work)
    assert during.labels == before.labels | {PLUGIN: names.PAUSED}
    assert during.unschedulable
    assert during.pause_record is not None
    assert during.pause_record.previous_labels == {PLUGIN: "true"}
    assert after == before


def test_what_another_writer_sets_at_the_same_moment_is_not_lost(environment: Cluster) -> None:
    # The label turns ``false`` between our read and our patch: pausing must not overwrite it.
    asked: list[str] = []

    def change(now: NodeMarks) -> NodePatch:
        asked.append(now.labels[PLUGIN])
        if len(asked) == 1:
            environment.must("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {PLUGIN: "false"}}})
        return pause(now, OPERANDS)

    assert ask(environment, lambda api: change_node(api, NODE, change)).metadata.labels[PLUGIN] == "false"
    assert asked == ["true", "false"]


def test_operand_pods_are_awaited(environment: Cluster) -> None:
    plugin = pod("plugin", OPERATOR, labels={"app": "nvidia-device-plugin-daemonset"}, ownerReferences=daemon("plugin"))
    client = pod("mine", selector={names.DEPLOY_PREFIX + "client": "true"}, ownerReferences=daemon("mine"))
    environment.apply(
        [plugin, client, pod("user"), pod("far", OPERATOR, on="gpu-2", labels=plugin["metadata"]["labels"])]
    )

    async def work(api: Api) -> tuple[str, bool]:
        match = operand_matcher(OPERANDS, (OPERATOR,))
        before = await await_gone(api, NODE, match, SOON)
        assert before.end is WaitEnd.TIMED_OUT
        async with kubelet(api):
            await api.delete(Pod, "plugin", OPERATOR)
            await api.delete(Pod, "mine", "team")
            after = await await_gone(api, NODE, match, LONG)
        return before.sentence, after.gone

    assert ask(environment, work) == (f"still there: {OPERATOR}/plugin, team/mine", True)


def test_validators_of_this_node_are_deleted(environment: Cluster) -> None:
    labels = {"app": MIG.validators_before[0]}
    environment.apply([pod("here", OPERATOR, labels=labels), pod("there", OPERATOR, on="gpu-2", labels=labels)])
    deleted = ask(environment, lambda api: delete_validators(api, NODE, MIG.validators_before, (OPERATOR,), LONG))
    assert deleted == (f"{OPERATOR}/here",)
    left = [p["metadata"]["name"] for p in environment.get(f"/api/v1/namespaces/{OPERATOR}/pods")["items"]]
    assert left == ["there"]


def test_pods_are_evicted_and_awaited(environment: Cluster) -> None:
    environment.apply([pod("a", grace_s=30), pod("b"), pod("d", ownerReferences=daemon("logs"))])

    async def work(api: Api) -> Any:
        async with kubelet(api):
            return await evict(api, [("team", n) for n in ("a", "b", "d", "none")], LONG, node=NODE)

    result = ask(environment, work)
    assert result.gone == ("team/a", "team/b", "team/none")
    assert [str(stays) for stays in result.remaining] == ["team/d: DaemonSet logs would create it again at once"]


def test_a_budget_holds_until_it_frees_up(environment: Cluster) -> None:
    environment.apply([pod("web-1", labels={"app": "web"}), budget(0)])
    refused = ask(environment, lambda api: evict(api, [("team", "web-1")], SOON, node=NODE))
    assert refused.gone == ()
    assert "The disruption budget web needs 1 healthy pods and has 1 currently" in refused.remaining[0].reason
    environment.apply([pod("web-2", labels={"app": "web"}), budget(1)])
    assert ask(environment, lambda api: evict(api, [("team", "web-1")], LONG, node=NODE)).gone == ("team/web-1",)


def test_force_ends_what_neither_a_budget_nor_its_grace_lets_go(environment: Cluster) -> None:
    environment.apply([pod("web-1", labels={"app": "web"}), pod("slow", grace_s=3600), budget(0)])
    left = [("team", "web-1"), ("team", "slow")]

    async def work(api: Api) -> tuple[Any, Any]:
        async with kubelet(api, deaf_to=("slow",)):
            return await evict(api, left, SOON, node=NODE), await evict(api, left, SOON, node=NODE, force=True)

    first, second = ask(environment, work)
    assert first.gone == ()
    assert "has not ended yet (it may take 3600 s)" in first.remaining[1].reason
    assert second.gone == ("team/web-1", "team/slow")


def test_a_pod_of_the_same_name_made_meanwhile_is_not_deleted(environment: Cluster) -> None:
    # A StatefulSet's pod is created again under its name as soon as it is gone.
    environment.apply(pod("db-0"))

    async def work(api: Api) -> bool:
        first, second = await replaced(api)
        await delete_pod(api, first, grace_s=0)
        return (await api.get(Pod, "db-0", "team")).metadata == second.metadata

    assert ask(environment, work)


@pytest.mark.slow
def test_a_pod_of_the_same_name_made_meanwhile_is_not_evicted(environment: Cluster) -> None:
    # A real server tries for 10 s before it reports that the uid is another's.
    environment.apply(pod("db-0"))

    async def work(api: Api) -> bool:
        first, second = await replaced(api)
        with pytest.raises((ConflictError, ApiUnavailableError)):
            await api.evict("db-0", "team", uid=first.metadata.uid)
        return (await api.get(Pod, "db-0", "team")).metadata == second.metadata

    assert ask(environment, work)


async def replaced(api: Api) -> tuple[Pod, Pod]:
    first = await api.get(Pod, "db-0", "team")
    await delete_pod(api, first, grace_s=0)
    return first, await api.create(Pod, {k: v for k, v in pod("db-0").items() if k != "status"}, "team")


def test_a_missing_right_names_the_command_that_shows_it(environment: Cluster) -> None:
    environment.apply(pod("a"))
    with pytest.raises(ForbiddenError) as caught:
        ask(environment, lambda api: evict(api, [("team", "a")], LONG), account="nobody")
    assert (caught.value.next_step or "").startswith("kubectl auth can-i get pods")
