"""The stand-in's own switches."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import pytest

from support.cluster import StandinCluster

NODES = "/api/v1/nodes"
NODE = {"metadata": {"name": "n1"}}


def test_requests_are_counted_by_verb_resource_and_user(standin_cluster: StandinCluster) -> None:
    control = standin_cluster.standin.control
    token = standin_cluster.service_account_token("default", "sa")
    control.forget()
    standin_cluster.must("POST", NODES, NODE)
    standin_cluster.request("GET", f"{NODES}/n1")
    standin_cluster.request("GET", NODES, token=token)
    standin_cluster.request("PATCH", f"{NODES}/n1/status", {})
    assert control.count() == 4
    assert control.count("get", "nodes") == 1
    assert control.count("list", user="system:serviceaccount:default:sa") == 1
    assert control.count(resource="nodes/status") == 1


def test_latency(standin_cluster: StandinCluster) -> None:
    standin_cluster.standin.control.latency_s = 0.2
    start = time.monotonic()
    standin_cluster.get(NODES)
    assert time.monotonic() - start >= 0.2


def test_errors_for_a_while(standin_cluster: StandinCluster) -> None:
    with standin_cluster.standin.control.during("error"):
        assert standin_cluster.request("GET", NODES).status == 500
    assert standin_cluster.request("GET", NODES).status == 200


def _watch(cluster: StandinCluster, query: str = "") -> Any:
    connection = cluster.connection()
    connection.request("GET", f"{NODES}?watch=1{query}", headers={"Authorization": f"Bearer {cluster.token}"})
    return connection, connection.getresponse()


def test_dropped_watches_end(standin_cluster: StandinCluster) -> None:
    standin_cluster.must("POST", NODES, NODE)
    connection, answer = _watch(standin_cluster)
    assert json.loads(answer.readline())["type"] == "ADDED"
    standin_cluster.standin.control.drop()
    with pytest.raises((OSError, http.client.IncompleteRead)):
        answer.read()
    connection.close()


def test_open_watches_outlive_the_history(standin_cluster: StandinCluster) -> None:
    # As in etcd: compaction is for those who come later.
    standin_cluster.must("POST", NODES, NODE)
    version = standin_cluster.get(NODES)["metadata"]["resourceVersion"]
    connection, answer = _watch(standin_cluster)
    assert json.loads(answer.readline())["type"] == "ADDED"
    standin_cluster.standin.store.expire()
    standin_cluster.must("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}})
    assert json.loads(answer.readline())["type"] == "MODIFIED"
    connection.close()
    late = standin_cluster.request("GET", f"{NODES}?watch=1&resourceVersion={version}&timeoutSeconds=5")
    assert (late.body["type"], late.body["object"]["code"]) == ("ERROR", 410)


def test_bookmarks_when_asked(standin_cluster: StandinCluster) -> None:
    from support.standin import watch

    every, watch.BOOKMARK_EVERY_S = watch.BOOKMARK_EVERY_S, 0.1
    connection, answer = _watch(standin_cluster, "&allowWatchBookmarks=true")
    try:
        event = json.loads(answer.readline())
    finally:
        watch.BOOKMARK_EVERY_S = every
        connection.close()
    assert event["type"] == "BOOKMARK"
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


def test_a_thousand_nodes_are_listed_in_pages(standin_cluster: StandinCluster) -> None:
    for n in range(1000):
        value = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{n:04}"}, "spec": {}, "status": {}}
        standin_cluster.standin.store.put("nodes.", value)
    page = standin_cluster.get(f"{NODES}?limit=500")
    assert (len(page["items"]), page["metadata"]["remainingItemCount"]) == (500, 500)
    rest = standin_cluster.get(f"{NODES}?limit=500&continue={page['metadata']['continue']}")
    assert (len(rest["items"]), "continue" in rest["metadata"]) == (500, False)


def test_writers_that_meet_lose_nothing(standin_cluster: StandinCluster) -> None:
    # Patches without a version are applied again to the state that the other left, as in the real server.
    from concurrent.futures import ThreadPoolExecutor

    standin_cluster.must("POST", NODES, NODE)

    def label(n: int) -> int:
        return standin_cluster.request("PATCH", f"{NODES}/n1", {"metadata": {"labels": {f"l{n}": "1"}}}).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(label, range(40))) == {200}
    assert len(standin_cluster.get(f"{NODES}/n1")["metadata"]["labels"]) == 40
