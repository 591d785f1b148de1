"""``aliquot doctor --kubeconfig`` against an API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.cli.doctor.cluster_checks import cluster_findings
from aliquot.cli.doctor.finding import DoctorFinding
from support.cluster import Cluster

LABELS = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "agent"}


def findings(cluster: Cluster) -> dict[str, DoctorFinding]:
    return {each.check: each for each in cluster_findings(str(cluster.kubeconfig()))}


def _node(cluster: Cluster, name: str) -> None:
    meta = {"name": name, "labels": {"nvidia.com/gpu.present": "true"}}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})


def _agent(cluster: Cluster, node: str, *, ready: bool) -> None:
    container: dict[str, Any] = {"name": "agent", "image": "aliquot"}
    meta = {"name": f"aliquot-{node}", "namespace": "default", "labels": LABELS}
    spec = {"nodeName": node, "containers": [container]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    status = {
        "containerStatuses": [{"name": "agent", "ready": ready, "image": "aliquot", "imageID": "", "restartCount": 0}]
    }
    media = {"Content-Type": "application/strategic-merge-patch+json"}
    cluster.must("PATCH", f"/api/v1/namespaces/default/pods/{meta['name']}/status", {"status": status}, media)


def test_a_cluster_is_checked_step_by_step(cluster: Cluster) -> None:
    _node(cluster, "n1")
    found = findings(cluster)
    assert found["API_SERVER"].status == "ok"
    assert found["RIGHTS"].status == "ok"
    assert found["CRDS"].status in ("ok", "note")
    assert (found["AGENTS"].status, found["AGENTS"].message) == ("problem", "no agent of Aliquot is in this cluster")
    _agent(cluster, "n1", ready=False)
    assert findings(cluster)["AGENTS"].message == "the agent is not ready on n1"
    _agent(cluster, "n1", ready=True)
    assert findings(cluster)["AGENTS"].status == "ok"
    _node(cluster, "n2")
    assert findings(cluster)["AGENTS"].message == "no agent on n2, which has GPUs"


def test_an_api_server_that_does_not_answer(tmp_path: Any) -> None:
    path = tmp_path / "config"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "x"}
    path.write_bytes(msgspec.json.encode(config))
    (found,) = cluster_findings(str(path))
    assert (found.check, found.status) == ("API_SERVER", "problem")
    (missing,) = cluster_findings(str(tmp_path / "none"))
    assert (missing.check, missing.status) == ("API_SERVER", "problem")


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "aliquot.kubernetes.client.client", None)
    (found,) = cluster_findings("config")
    assert (found.status, found.next_step) == (
        "problem",
        "pip install 'aliquot[agent]'   # in a checkout: pip install '.[agent]'",
    )
