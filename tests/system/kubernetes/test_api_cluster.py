"""The client against whole API servers: the stand-in and a real kube-apiserver if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
)
from aliquot.kubernetes.client.leader_election import LeaderElector, LeaseTiming
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap, KubeObject, Lease, Node, Pod, ResourceType
from aliquot.kubernetes.client.transport import HttpCall, ResponseStream
from aliquot.kubernetes.client.watch import Change, FullList, ObjectDeleted, WatchTiming, watch
from support.cluster import Cluster

QUICK = WatchTiming(first_backoff_s=0.05, longest_backoff_s=0.3, refused_s=0.3)
CONTAINERS = [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}]


def run(cluster: Cluster, story: Callable[[Api], Awaitable[None]], *, account: str | None = None) -> None:
    async def main() -> None:
        async with Api.connect(str(cluster.kubeconfig("team", account))) as api:
            await story(api)

    cluster.namespace("team")
    asyncio.run(main())


async def node(api: Api, name: str = "n1", **labels: str) -> Node:
    return await api.create(Node, {"metadata": {"name": name, "labels": labels}})


async def pod(api: Api, name: str = "p", **labels: str) -> Pod:
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "n1", "containers": CONTAINERS}}
    await api.create(Pod, body)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return await api.patch(Pod, name, {"status": ready}, subresource="status")


def test_objects_come_and_go(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        made = await node(api, a="b")
        assert made.metadata.labels == {"a": "b"}
        assert await api.get(Node, "n1") == made
        patched = await api.patch(Node, "n1", {"metadata": {"labels": {"a": None, "c": "d"}}})
        assert (patched.metadata.labels, patched.metadata.uid) == ({"c": "d"}, made.metadata.uid)
        await api.patch(Node, "n1", [{"op": "add", "path": "/metadata/labels/e", "value": "f"}], style="json")
        assert [n.name for n in await api.list(Node, labels="c=d,e in (f, g),!a")] == ["n1"]
        assert await api.list(Node, labels={"c": "x"}) == ()
        assert [n.name for n in await api.list(Node, fields={"metadata.name": "n1"})] == ["n1"]
        with pytest.raises(ConflictError) as caught:
            await api.delete(Node, "n1", uid="another")
        assert caught.value.status == 409
        await api.delete(Node, "n1", uid=made.metadata.uid)
        with pytest.raises(NotFoundError, match=r'nodes "n1" not found'):
            await api.get(Node, "n1")

    run(cluster, story)


def test_a_patch_that_names_a_version_is_refused_after_a_change(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        first = await node(api)
        body = {"metadata": {"resourceVersion": first.metadata.resource_version, "labels": {"a": "1"}}}
        await api.patch(Node, "n1", body)
        with pytest.raises(ConflictError) as caught:
            await api.patch(Node, "n1", body)
        assert caught.value.reason == "Conflict"
        with pytest.raises(ConflictError) as caught:
            await node(api)
        assert caught.value.reason == "AlreadyExists"

    run(cluster, story)


def test_server_side_apply_and_namespaces(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        body = {"metadata": {"name": "m"}, "data": {"config.yaml": "x: 1"}}
        mine = await api.patch(ConfigMap, "m", body, style="apply")
        assert (mine.metadata.namespace, mine.data) == ("team", {"config.yaml": "x: 1"})
        cluster.namespace("other")
        await api.create(ConfigMap, {"metadata": {"name": "m"}}, "other")
        found = await api.list(ConfigMap, "*", fields="metadata.name=m")
        assert sorted(each.metadata.namespace for each in found) == ["other", "team"]
        assert [each.metadata.namespace for each in await api.list(ConfigMap, fields="metadata.name=m")] == ["team"]

    run(cluster, story)


def test_the_pods_of_a_node(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        await node(api)
        await pod(api)
        other = {"metadata": {"name": "q"}, "spec": {"nodeName": "n2", "containers": CONTAINERS}}
        await api.create(Pod, other)
        (found,) = await api.list(Pod, "*", fields="spec.nodeName=n1")
        assert (found.name, found.status.phase) == ("p", "Running")
        assert found.spec.containers[0].resources.limits == {"nvidia.com/mig-1g.5gb": "1"}

    run(cluster, story)


def test_an_eviction_respects_the_budget(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        await node(api)
        held = await pod(api, app="web")
        budget = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        cluster.must("POST", budget, {"metadata": {"name": "web"}, "spec": spec})
        status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
                  "expectedPods": 1}  # fmt: skip
        cluster.must("PATCH", f"{budget}/web/status", {"status": status})
        with pytest.raises(ThrottledError) as caught:
            await api.evict("p", uid=held.metadata.uid)
        assert "pod team/p cannot be evicted now: Cannot evict pod" in caught.value.brief
        assert any("The disruption budget web needs 1 healthy pods" in line for line in caught.value.details)
        cluster.must("PATCH", f"{budget}/web/status", {"status": {"disruptionsAllowed": 1}})
        await api.evict("p", uid=held.metadata.uid)
        assert (await api.get(Pod, "p")).metadata.deletion_timestamp is not None
        await api.delete(Pod, "p", grace_s=0)
        with pytest.raises(NotFoundError):
            await api.evict("p")

    run(cluster, story)


def test_what_this_cluster_does_not_have(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        for kind in (_Unknown, _UnknownGroup):
            with pytest.raises(NotFoundError, match="this cluster does not serve") as caught:
                await api.list(kind)
            assert caught.value.next_step == "kubectl api-resources"

    run(cluster, story)


class _Unknown(KubeObject, frozen=True):
    TYPE = ResourceType("", "v1", "gremlins", "Gremlin", namespaced=False)


class _UnknownGroup(KubeObject, frozen=True):
    TYPE = ResourceType("nowhere.example", "v1", "gremlins", "Gremlin", namespaced=False)


def test_an_object_that_breaks_the_rules_is_reported_by_field(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        await node(api)
        with pytest.raises(ApiError) as caught:
            await api.patch(Node, "n1", {"metadata": {"labels": {"a b": "c"}}})
        assert (caught.value.status, caught.value.reason) == (422, "Invalid")
        assert "metadata.labels" in "\n".join((caught.value.brief, *caught.value.details))

    run(cluster, story)


def test_rights_are_asked_for_and_missing_ones_are_named(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        user = "system:serviceaccount:team:reader"
        assert not await api.can_i("patch", "nodes")
        assert not await api.can_i("create", "pods/eviction", "team")
        with pytest.raises(ForbiddenError) as caught:
            await api.patch(Node, "n1", {"metadata": {"labels": {"a": "b"}}})
        assert caught.value.brief == f'user "{user}" lacks permission to patch nodes n1'
        assert caught.value.next_step == f"kubectl auth can-i patch nodes/n1 --as={user}"
        await _grant(cluster, user)
        for _ in range(50):  # a real server learns of a binding a moment later
            if await api.can_i("patch", "nodes"):
                break
            await asyncio.sleep(0.1)
        assert await api.can_i("patch", "nodes", name="n1")
        assert not await api.can_i("delete", "nodes")
        await api.patch(Node, "n1", {"metadata": {"labels": {"a": "b"}}})

    cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    run(cluster, story, account="reader")


async def _grant(cluster: Cluster, user: str) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch", "get"]}]
    cluster.must("POST", f"{rbac}/clusterroles", {"metadata": {"name": "patcher"}, "rules": rules})
    body: dict[str, Any] = {
        "metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    cluster.must("POST", f"{rbac}/clusterrolebindings", body)


@asynccontextmanager
async def watching(api: Api, name: str | None = None) -> AsyncGenerator[Watched, None]:
    watched = Watched()
    watched.changes = watch(api, Node, name=name, timing=QUICK, report=watched.reports.append)
    try:
        yield watched
    finally:
        await watched.changes.aclose()


class Watched:
    def __init__(self) -> None:
        self.changes: AsyncGenerator[Change[Node], None]
        self.reports: list[ApiError | None] = []

    async def next(self) -> Change[Node]:
        async with asyncio.timeout(30):
            return await anext(self.changes)

    async def until(self, label: str) -> list[Change[Node]]:
        """Return the changes up to the one in which a node has this label."""
        found = [await self.next()]
        while not any(label in item.metadata.labels for item in _present(found[-1])):
            found.append(await self.next())
        return found


def _present(change: Change[Node]) -> tuple[Node, ...]:
    if isinstance(change, FullList):
        return change.items
    return () if isinstance(change, ObjectDeleted) else (change.item,)


async def label(api: Api, name: str, key: str) -> None:
    await api.patch(Node, name, {"metadata": {"labels": {key: "yes"}}})


def test_one_node_is_watched_and_no_other(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        await node(api, "n1")
        await node(api, "n2")
        async with watching(api, "n1") as watched:
            first = await watched.next()
            assert isinstance(first, FullList)
            assert [item.name for item in first.items] == ["n1"]
            await label(api, "n2", "not-ours")
            await label(api, "n1", "ours")
            seen = await watched.until("ours")
            assert [c.item.name for c in seen if not isinstance(c, FullList)] == ["n1"]
            await api.delete(Node, "n1")
            gone = await watched.next()
            assert isinstance(gone, ObjectDeleted)
            assert gone.item.name == "n1"
            assert watched.reports == []

    run(cluster, story)


def test_a_leader_is_elected_and_followed(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        timing = LeaseTiming(lease_s=4, renew_s=3, retry_s=0.2)
        changes: list[tuple[str, bool]] = []

        def leader(name: str) -> LeaderElector:
            return LeaderElector(
                api, "ours", identity=name, timing=timing, on_change=lambda now: changes.append((name, now))
            )

        async with asyncio.timeout(20):
            async with leader("b") as second:
                async for leading in second:
                    if leading:
                        break
                async with leader("a") as first:
                    await asyncio.sleep(1)
                    assert (first.is_leader, first.holder) == (False, "b")
                    held = await api.get(Lease, "ours")
                    assert (held.spec.holder_identity, held.spec.lease_duration_seconds) == ("b", 4)
                    await second.__aexit__()
                    async for leading in first:
                        if leading:
                            break
        assert changes == [("b", True), ("b", False), ("a", True), ("a", False)]
        assert (await api.get(Lease, "ours")).spec.lease_transitions == 1

    run(cluster, story)


def test_kinds_that_are_watched_can_be_listed(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        for kind in (Node, Pod, ConfigMap, Lease):
            assert isinstance(await api.list(kind, "*"), tuple)

    run(cluster, story)


def test_a_long_list_is_whole(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aliquot.kubernetes.client.client.PAGE_SIZE", 7)

    async def story(api: Api) -> None:
        for number in range(23):
            await api.create(ConfigMap, {"metadata": {"name": f"m-{number:02}"}})
        before = dict(api.requests)
        names = [m.name for m in await api.list(ConfigMap, labels="!kubernetes.io/x") if m.name.startswith("m-")]
        assert names == [f"m-{number:02}" for number in range(23)]
        assert api.requests["list", "configmaps"] - before.get(("list", "configmaps"), 0) >= 4

    run(cluster, story)


def test_what_happened_before_the_servers_memory_begins_is_reported(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The version of the list is forgotten before the watch from it begins: 410, and everything is listed again.
    async def story(api: Api) -> None:
        for name in ("stays", "goes", "changes", "remade"):
            await node(api, name)
        gate, stream = asyncio.Event(), api.session.stream

        @asynccontextmanager
        async def gated(call: HttpCall) -> AsyncGenerator[ResponseStream, None]:
            await gate.wait()
            async with stream(call) as open_stream:
                yield open_stream

        monkeypatch.setattr(api.session, "stream", gated)
        async with watching(api) as watched:
            first = await watched.next()
            assert isinstance(first, FullList)
            waiting = asyncio.create_task(watched.until("end"))
            for name in ("goes", "remade"):
                await api.delete(Node, name)
            await label(api, "changes", "changed")
            await node(api, "remade", young="yes")
            await asyncio.to_thread(cluster.expire)
            gate.set()
            await label(api, "stays", "end")
            again = next(change for change in await waiting if isinstance(change, FullList))
            labels = {item.name: item.metadata.labels for item in again.items}
            assert set(labels) == {"stays", "changes", "remade"}
            assert ("changed" in labels["changes"], "young" in labels["remade"]) == (True, True)
            assert api.requests["list", "nodes"] == 2

    run(cluster, story)


def test_a_server_that_disappears_and_comes_back_loses_nothing(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        await node(api, "n1")
        async with watching(api) as watched:
            assert isinstance(await watched.next(), FullList)
            waiting = asyncio.create_task(watched.until("after"))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(_unavailable_until, cluster, watched)
            await label(api, "n1", "after")
            await waiting
            assert isinstance(watched.reports[0], ApiUnavailableError)
            assert watched.reports[-1] is None

    run(cluster, story)


def _unavailable_until(cluster: Cluster, watched: Watched) -> None:
    """Stop the server until the watch has noticed."""
    with cluster.unavailable():
        cluster.wait(lambda: watched.reports, "the watch to notice")


def test_a_server_that_stops_answering_is_given_up_in_time(cluster: Cluster) -> None:
    async def story(api: Api) -> None:
        api.session.timeout_s = 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        with cluster.unavailable("hang"):
            # Which limit ends it depends on the handshake: a hung server does not answer that either.
            with pytest.raises(ApiUnavailableError, match=r"within|timed out"):
                await api.get(ClusterPolicy, "x")
            took = loop.time() - started
        assert took < 3

    run(cluster, story)
