"""Calls over a connection that misbehaves: every failure is an error with a message, and every wait has an end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from aliquot.kubernetes.client.client import PAGE_SIZE, Api
from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
    UnauthorizedError,
)
from aliquot.kubernetes.client.objects import ConfigMap, Node, Pod
from system.kubernetes.api_scripted import Scripted, Seen, Wire, api, failure, listed, node


def test_each_call_is_the_request_that_kubernetes_documents(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(node("n", 7))

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            await client.get(Node, "n")
            await client.create(ConfigMap, {"metadata": {"name": "m"}})
            await client.patch(Node, "n", {"a": 1}, subresource="status")
            await client.patch(Node, "n", [{"op": "remove", "path": "/x"}], style="json")
            await client.patch(ConfigMap, "m", {"data": {}}, namespace="other", style="apply")
            await client.delete(Pod, "p", grace_s=0, uid="u")
            await client.evict("p", "other", grace_s=5, uid="u")
        assert [(s.method, s.path) for s in server.seen] == [
            ("GET", "/api/v1/nodes/n"),
            ("POST", "/api/v1/namespaces/ours/configmaps"),
            ("PATCH", "/api/v1/nodes/n/status"),
            ("PATCH", "/api/v1/nodes/n"),
            ("PATCH", "/api/v1/namespaces/other/configmaps/m"),
            ("DELETE", "/api/v1/namespaces/ours/pods/p"),
            ("POST", "/api/v1/namespaces/other/pods/p/eviction"),
        ]
        kinds = [s.headers.get("content-type", "") for s in server.seen[2:5]]
        assert kinds == [f"application/{k}" for k in ("merge-patch+json", "json-patch+json", "apply-patch+yaml")]
        assert server.seen[1].json() == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
        assert server.seen[4].query == {"fieldManager": "aliquot", "force": "true"}
        assert server.seen[4].json() == {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}
        assert server.seen[5].json() == options
        assert server.seen[6].json()["deleteOptions"] == options | {"gracePeriodSeconds": 5}
        assert server.seen[6].json()["metadata"] == {"name": "p", "namespace": "other"}

    asyncio.run(main())


@pytest.mark.parametrize(("minor", "found"), [("36", (1, 36)), ("34+", (1, 34)), ("", (0, 0)), ("x", (0, 0))])
def test_the_version_of_the_server(tmp_path: Path, minor: str, found: tuple[int, int]) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        assert seen.path == "/version"
        await wire.answer({"major": "1", "minor": minor, "gitVersion": "v1"})

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            assert (await client.version()).release == found

    asyncio.run(main())


def test_requests_are_counted_and_reported(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(node("n", 7), 404 if "gone" in seen.path else 200)

    heard: list[tuple[str, str, int]] = []

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            client.session.on_request = lambda verb, what, status, seconds: heard.append((verb, what, status))
            await client.get(Node, "n")
            await client.evict("p")
            with pytest.raises(NotFoundError):
                await client.get(Node, "gone")
            assert client.requests == {("get", "nodes"): 2, ("create", "pods/eviction"): 1}

    asyncio.run(main())
    assert heard == [("get", "nodes", 200), ("create", "pods/eviction", 200), ("get", "nodes", 404)]


def test_a_long_list_is_read_page_by_page(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        more = {"": "b", "b": "c", "c": ""}[seen.query.get("continue", "")]
        await wire.answer(listed(9, node(f"n{more}", 1), more=more))

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            items = await client.list(Node, labels={"a": "b", "c": "d"}, fields="spec.x=y")
            assert [item.name for item in items] == ["nb", "nc", "n"]
        first = server.seen[0].query
        assert first == {"labelSelector": "a=b,c=d", "fieldSelector": "spec.x=y", "limit": str(PAGE_SIZE)}
        assert [s.query.get("continue") for s in server.seen] == [None, "b", "c"]

    asyncio.run(main())


def test_pages_that_expire_half_way_are_read_again_in_one_go(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        if "continue" in seen.query:
            await wire.refuse(410, "Expired", "The provided continue parameter is too old")
        elif "limit" in seen.query:
            await wire.answer(listed(9, node("a", 1), more="token"))
        else:
            await wire.answer(listed(12, node("a", 1), node("b", 2)))

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            assert [item.name for item in await client.list(Node)] == ["a", "b"]

    asyncio.run(main())


@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_when_to_come_back(tmp_path: Path, status: int) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        if len(server.seen) < 3:
            await wire.refuse(status, "TooManyRequests", "later", {"Retry-After": "1"})
        else:
            await wire.answer(node("n", 7))

    server = Scripted(play)

    async def main() -> None:
        async with server, api(tmp_path, server.url) as client:
            started = time.monotonic()
            await client.patch(Node, "n", {})
            assert 2 <= time.monotonic() - started < 4
            assert len(server.seen) == 3

    asyncio.run(main())


def test_patience_ends(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.refuse(429, "TooManyRequests", "later", {"Retry-After": "60"})

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            started = time.monotonic()
            with pytest.raises(ThrottledError) as caught:
                await client.get(Node, "n")
            assert time.monotonic() - started < 1
            assert (caught.value.retry_after_s, caught.value.status) == (60, 429)
            assert len(server.seen) == 1

    asyncio.run(main())


def test_an_eviction_that_a_budget_holds_back_is_reported_at_once(tmp_path: Path) -> None:
    output = "Cannot evict pod as it would violate the pod's disruption budget."
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2"}

    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(failure(429, "TooManyRequests", output, causes=[cause]), 429, {"Retry-After": "1"})

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            with pytest.raises(ThrottledError) as caught:
                await client.evict("web-1", "shop")
            assert len(server.seen) == 1
            assert caught.value.brief == f"pod shop/web-1 cannot be evicted now: {output}"
            assert caught.value.details == (cause["message"],)
            assert caught.value.next_step == "kubectl get pdb -n shop"

    asyncio.run(main())


def test_an_eviction_among_too_many_requests_waits_its_turn(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        if len(server.seen) == 1:
            await wire.refuse(429, "TooManyRequests", "Too many requests", {"Retry-After": "1"})
        else:
            await wire.answer(failure(201), 201)

    server = Scripted(play)

    async def main() -> None:
        async with server, api(tmp_path, server.url) as client:
            await client.evict("web-1")
            assert len(server.seen) == 2

    asyncio.run(main())


def test_a_pod_under_two_budgets_cannot_be_evicted_and_the_server_is_well(tmp_path: Path) -> None:
    output = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

    async def play(seen: Seen, wire: Wire) -> None:
        await wire.refuse(500, "", output)

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            with pytest.raises(ApiError, match="cannot be evicted: This pod has more than one") as caught:
                await client.evict("web-1")
            assert not isinstance(caught.value, ApiUnavailableError)

    asyncio.run(main())


def test_a_slow_answer_is_not_waited_for(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        if "headers" in seen.path:
            await asyncio.sleep(30)
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _ in range(100):
            await wire.raw(b" ")
            await asyncio.sleep(0.3)

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url, timeout_s=0.5) as client:
            for name in ("headers", "body"):
                started = time.monotonic()
                with pytest.raises(ApiUnavailableError, match=r"within 0\.5 s"):
                    await client.get(Node, name)
                assert time.monotonic() - started < 1.5
            assert len(server.seen) == 2

    asyncio.run(main())


def test_no_server_listens(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scripted(lambda *_: asyncio.sleep(0)) as server:
            url = server.url
        async with api(tmp_path, url) as client:
            with pytest.raises(ApiUnavailableError, match="Connection refused") as caught:
                await client.get(Node, "n")
            assert caught.value.next_step == f"kubectl --server={url} version"
            assert client.requests == {("get", "nodes"): 1}

    asyncio.run(main())


def test_a_broken_connection_is_tried_again_for_reads_only(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET" and len(server.seen) % 2 == 0:
            await wire.answer(node("n", 7))
        else:
            wire.reset()

    server = Scripted(play)

    async def main() -> None:
        async with server, api(tmp_path, server.url) as client:
            assert (await client.get(Node, "n")).name == "n"
            with pytest.raises(ApiUnavailableError):
                await client.patch(Node, "n", {})
            assert [s.method for s in server.seen] == ["GET", "GET", "PATCH"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, ApiError), (401, UnauthorizedError), (403, ForbiddenError), (404, NotFoundError), (409, ConflictError),
     (429, ThrottledError), (500, ApiUnavailableError), (502, ApiUnavailableError), (504, ApiUnavailableError)],
)  # fmt: skip
@pytest.mark.parametrize(
    "body", [b"", b"<html>a proxy</html>", b"\xff\xfe", b'{"kind":"Status","details":null}', b"[]"]
)
def test_every_refusal_is_an_error_of_ours(tmp_path: Path, status: int, kind: type[ApiError], body: bytes) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(body, status)

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            with pytest.raises(kind) as caught:
                await client.get(Node, "n")
            assert type(caught.value) is kind
            assert caught.value.status == status
            assert "nodes" in caught.value.brief

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"<html>log in here</html>", b"[]", b'{"metadata":{"labels":[1]}}'])
def test_an_answer_that_makes_no_sense_is_an_error_too(tmp_path: Path, body: bytes) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(body)

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            with pytest.raises(ApiError, match=r"not from a Kubernetes API server|cannot be read"):
                await client.get(Node, "n")

    asyncio.run(main())


def test_a_call_after_the_end_is_an_error_of_ours_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scripted(lambda *_: asyncio.sleep(0)) as server:
            client = api(tmp_path, server.url)
            await client.aclose()
            with pytest.raises(ApiUnavailableError, match="closed"):
                await client.get(Node, "n")
            await client.aclose()
            assert server.seen == []

    asyncio.run(main())


@pytest.mark.parametrize("name", ["", "..", "a/b", "../secrets/x"])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    async def main(client: Api) -> None:
        with pytest.raises(ValueError, match="is not a valid name"):
            await client.delete(Pod, name)

    asyncio.run(main(api(tmp_path, "http://127.0.0.1:1")))
