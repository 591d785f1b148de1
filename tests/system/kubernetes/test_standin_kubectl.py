"""Commands of people: the same ``kubectl`` against both servers."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from support.cluster import Cluster, kubectl_minor

pytestmark = pytest.mark.skipif(kubectl_minor() < 27, reason="no kubectl 1.27 or later")

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {a: b}}
status: {capacity: {cpu: 4, nvidia.com/gpu: 8}}
"""
RUN = ["--image=x", "--overrides", json.dumps({"spec": {"nodeName": "n1"}})]


def test_create_and_ask_for_rights(cluster: Cluster) -> None:
    # These write protobuf.
    cluster.kubectl("create", "namespace", "gpu")
    cluster.kubectl("create", "serviceaccount", "agent", "-n", "gpu")
    cluster.kubectl("create", "clusterrole", "reader", "--verb=get,list", "--resource=nodes")
    cluster.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=gpu:agent")
    agent = cluster.kubeconfig("gpu", "agent")
    cluster.wait(lambda: cluster.kubectl("auth", "can-i", "list", "nodes", config=agent, check=False) == "yes\n")
    assert cluster.kubectl("auth", "can-i", "patch", "nodes/status", config=agent, check=False) == "no\n"
    refused = cluster.kubectl_run("label", "node", "n1", "a=b", config=agent)
    assert 'nodes "n1" not found' in refused.stderr
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    refused = cluster.kubectl_run("label", "node", "n1", "a=b", config=agent)
    assert 'User "system:serviceaccount:gpu:agent" cannot patch resource "nodes"' in refused.stderr


def test_apply_twice_and_by_the_server(cluster: Cluster) -> None:
    assert cluster.kubectl("apply", "-f", "-", stdin=NODE) == "node/n1 created\n"
    cluster.kubectl("label", "node", "n1", "hand=made")
    assert cluster.kubectl("apply", "-f", "-", stdin=NODE.replace("a: b", "a: c")) == "node/n1 configured\n"
    labels = cluster.get("/api/v1/nodes/n1")["metadata"]["labels"]
    assert (labels["a"], labels["hand"]) == ("c", "made")
    over = cluster.kubectl("apply", "--server-side", "-f", "-", stdin=NODE)
    assert over == "node/n1 serverside-applied\n", "what was applied by the client is taken over"
    by_hand = NODE.replace("a: b", "hand: other")
    refused = cluster.kubectl_run("apply", "--server-side", "-f", "-", stdin=by_hand)
    assert (
        'Apply failed with 1 conflict: conflict with "kubectl-label" using v1: .metadata.labels.hand' in refused.stderr
    )
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=by_hand)
    assert cluster.get("/api/v1/nodes/n1")["metadata"]["labels"] == {"hand": "other"}


def test_a_dry_run_of_a_deletion_deletes_nothing(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    assert "deleted (server dry run)" in cluster.kubectl("delete", "node", "n1", "--dry-run=server")
    assert "deleted (server dry run)" in cluster.kubectl("delete", "nodes", "--all", "--dry-run=server")
    assert cluster.get("/api/v1/nodes/n1")["metadata"]["labels"] == {"a": "b"}
    cluster.kubectl("delete", "node", "n1")
    assert cluster.request("GET", "/api/v1/nodes/n1").status == 404


def test_unknown_fields_and_bad_labels_are_refused(cluster: Cluster) -> None:
    refused = cluster.kubectl_run("apply", "-f", "-", stdin=NODE + "spec: {nothing: 1}\n")
    assert 'unknown field "spec.nothing"' in refused.stderr
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    refused = cluster.kubectl_run("label", "node", "n1", "nvidia.com/mig.config=" + "x" * 64)
    assert "must be no more than 63" in refused.stderr


def test_drain_evicts_and_cordons(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    cluster.kubectl("run", "p1", *RUN, "--restart=Never")
    drained = cluster.kubectl_run("drain", "n1", "--force", "--timeout=1s")
    assert "evicting pod default/p1" in drained.stderr + drained.stdout
    pod = cluster.get("/api/v1/namespaces/default/pods/p1")
    assert "deletionTimestamp" in pod["metadata"]
    assert cluster.kubectl("get", "node", "n1").split()[6] == "Unknown,SchedulingDisabled"
    cluster.kubectl("delete", "pod", "p1", "--grace-period=0", "--force")
    cluster.kubectl("uncordon", "n1")
    assert "unschedulable" not in cluster.get("/api/v1/nodes/n1")["spec"]


def test_describe_and_columns(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    cluster.kubectl("run", "p1", *RUN)
    described = cluster.kubectl("describe", "node", "n1")
    assert "nvidia.com/gpu:  8" in described
    assert "p1" in described
    assert "n1/" in cluster.kubectl("describe", "pod", "p1")
    columns = "custom-columns=N:.metadata.name,G:.status.capacity.nvidia\\.com/gpu"
    assert cluster.kubectl("get", "nodes", "-o", columns, "--no-headers").split() == ["n1", "8"]
    cells = cluster.kubectl("get", "pods", "-o", "wide", "--no-headers").split()
    assert (cells[:4], cells[5:7]) == (["p1", "0/1", "Pending", "0"], ["<none>", "n1"])


def test_watch_prints_changes(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig()), "get", "nodes", "-w", "--no-headers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:2] == ["n1", "Unknown"]
        cluster.must("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        assert watching.stdout.readline().split()[:2] == ["n1", "Unknown,SchedulingDisabled"]
        watching.terminate()


def test_wait_for_a_condition(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=NODE)
    command = ["kubectl", "--kubeconfig", str(cluster.kubeconfig()), "wait", "--for=condition=Ready", "node/n1"]
    with subprocess.Popen([*command, "--timeout=20s"], stdout=subprocess.PIPE, text=True) as waiting:
        time.sleep(0.3)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        cluster.must("PATCH", "/api/v1/nodes/n1/status", ready)
        assert waiting.stdout is not None
        assert waiting.stdout.read() == "node/n1 condition met\n"
