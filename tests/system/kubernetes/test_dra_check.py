"""``aliquot dra check`` against an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.kubernetes.dra.model.device_classes import device_classes, published_profiles
from aliquot.kubernetes.manifests import access
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, Values
from support.cluster import Cluster, RealCluster, why_not_real
from support.cluster_real import RealServer, assets
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.view.test_pools import published

NAMESPACE = "gpu-operator"
LABELS = {"aliquot.dev/allocation": "dra", "nvidia.com/gpu.deploy.mig-manager": "true"}


def check(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], *words: str, account: str | None = None
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code, and for each check the most severe finding."""
    config = str(cluster.kubeconfig(serviceaccount=account))
    code = main(["dra", "check", "--kubeconfig", config, "--dra-driver", NAMING.driver, "-o", "json", *words])
    document = msgspec.json.decode(capsys.readouterr().out)
    assert document["kind"] == "DraCheck"
    assert document["fine"] == (code == 0)
    found: dict[str, dict[str, Any]] = {}
    for each in document["findings"]:
        if each["check"] not in found or each["status"] == "problem":
            found[each["check"]] = each
    return code, found


def _apply(cluster: Cluster, kind: str, found: Any) -> None:
    for each in found:
        cluster.apply({"apiVersion": "resource.k8s.io/v1", "kind": kind, **msgspec.to_builtins(each)})


def _install(cluster: Cluster, *, ready: bool = True) -> None:
    """Create a node with slices, its device classes, and a claim agent with the account of the manifests."""
    cluster.namespace(NAMESPACE)
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": LABELS}})
    _apply(cluster, "ResourceSlice", published())
    _apply(cluster, "DeviceClass", device_classes(NAMING, published_profiles(published())))
    cluster.apply(access.account(AGENT_ACCOUNT, Values()))
    meta = {
        "name": "aliquot-claims-1",
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "claims"},
    }
    spec = {"nodeName": "n1", "serviceAccountName": AGENT_ACCOUNT, "containers": [{"name": "claims", "image": "i"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    status = {"name": "claims", "ready": ready, "image": "i", "imageID": "", "restartCount": 0}
    media = {"Content-Type": "application/strategic-merge-patch+json"}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/aliquot-claims-1/status"
    cluster.must("PATCH", path, {"status": {"containerStatuses": [status]}}, media)


def test_a_cluster_is_checked_step_by_step(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = check(cluster, capsys)
    assert (code, found["SERVER_VERSION"]["status"], found["SLICES"]["status"]) == (0, "ok", "note")
    _install(cluster)
    code, found = check(cluster, capsys)
    assert (code, found["AGENT_RIGHTS"]["status"]) == (20, "problem")
    assert found["AGENT_RIGHTS"]["next"] == "kubectl describe clusterrolebindings aliquot-agent"
    cluster.apply(access.roles(AGENT_ACCOUNT, Values(), claims=True))
    cluster.apply([each for each in access.roles(AGENT_ACCOUNT, Values()) if "namespace" not in each["metadata"]])
    code, found = check(cluster, capsys)
    assert (code, found["AGENT_RIGHTS"]["status"]) == (20, "problem")
    assert found["AGENT_RIGHTS"]["next"].endswith("--as=system:serviceaccount:gpu-operator:aliquot-agent")
    cluster.apply(access.roles(AGENT_ACCOUNT, Values()))
    code, found = check(cluster, capsys)
    assert {name: each["message"] for name, each in found.items() if each["status"] == "problem"} == {}
    assert code == 0
    assert {name for name, each in found.items() if each["status"] == "ok"} == {
        "SERVER_VERSION", "PARTITIONABLE_DEVICES", "EXTENDED_RESOURCES", "USER_RIGHTS", "AGENT_RIGHTS", "SLICES",
        "CLASSES", "CLAIM_AGENTS",
    }  # fmt: skip


def test_a_text_names_each_problem_and_what_to_type(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    _install(cluster, ready=False)
    config = str(cluster.kubeconfig())
    assert main(["dra", "check", "--kubeconfig", config]) == 20
    text = capsys.readouterr().out
    assert (
        "\n  problem  the claim agent of node n1 is not ready\n  next     kubectl -n gpu-operator logs aliquot-" in text
    )
    assert text.rstrip().splitlines()[-1].startswith("verdict: ")
    assert main(["dra", "check", "--dra-driver", "gpu"]) == 2
    assert "aliquot dra check --dra-driver gpu.aliquot.dev" in capsys.readouterr().err


def test_a_user_without_rights_learns_which_checks_are_left_out(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(cluster)
    code, found = check(cluster, capsys, account="reader")
    assert (code, found["READ"]["status"]) == (20, "problem")
    assert found["READ"]["next"].startswith("kubectl auth can-i list ")
    assert found["SERVER_VERSION"]["status"] == "ok"
    assert (found["USER_RIGHTS"]["status"], found["AGENT_RIGHTS"]["status"]) == ("note", "note")
    assert "are not known" in found["AGENT_RIGHTS"]["message"]
    assert not {"SLICES", "CLASSES", "CLAIM_AGENTS"} & set(found)


def test_an_api_that_is_not_served_is_a_finding(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aliquot.kubernetes.dra.model import objects

    moved = msgspec.structs.replace(objects.ResourceSlice.TYPE, version="v1alpha9")
    monkeypatch.setattr(objects.ResourceSlice, "TYPE", moved)
    code, found = check(cluster, capsys)
    assert (code, found["DRA_API"]["status"]) == (20, "problem")
    assert "--runtime-config=resource.k8s.io/v1=true" in found["DRA_API"]["next"]


def test_an_api_server_that_does_not_answer_is_a_finding(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dra", "check", "--kubeconfig", str(tmp_path / "none")]) == 20
    assert "verdict: 1 problem" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long(about=["src/aliquot/cli/dra"])
def test_a_real_server_drops_the_fields_of_a_gate_that_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binaries = assets()
    if binaries is None:
        pytest.skip(why_not_real())
    server = RealServer(tmp_path, binaries, "--feature-gates=DRAPartitionableDevices=false,DRAExtendedResource=false")
    try:
        cluster = RealCluster(server, tmp_path)
        cluster.wait_ready()
        _apply(cluster, "ResourceSlice", published())
        config = str(cluster.kubeconfig())
        assert main(["dra", "classes", "--kubeconfig", config, "--dra-driver", NAMING.driver]) == 0
        cluster.kubectl("apply", "-f", "-", stdin=capsys.readouterr().out)
        code, found = check(cluster, capsys)
        cluster.close()
    finally:
        server.close()
    assert (code, found["PARTITIONABLE_DEVICES"]["status"]) == (20, "problem")
    assert found["EXTENDED_RESOURCES"]["status"] == "problem"
