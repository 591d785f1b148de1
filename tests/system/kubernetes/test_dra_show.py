"""``aliquot dra show`` and ``aliquot dra classes`` against an API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from aliquot.cli.main import main
from support.cluster import Cluster
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.view.test_pools import POOL, published

TRAIN = "gpu-0-mig-3g20gb-9-4"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@pytest.fixture
def published_cluster(cluster: Cluster) -> Cluster:
    """Return a cluster with one node, and a claim that has half of its GPU."""
    for each in published(allocated=(TRAIN,)):
        plain: dict[str, Any] = msgspec.to_builtins(each)
        cluster.must("POST", SLICES, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **plain})
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "train"},
        "spec": {"devices": {"requests": [request]}},
    }
    cluster.must("POST", path, claim)
    result = {"request": "gpu", "driver": NAMING.driver, "pool": POOL, "device": TRAIN}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "u"}],
    }
    media = {"Content-Type": "application/merge-patch+json"}
    cluster.must("PATCH", f"{path}/train/status", {"status": status}, media)
    return cluster


def typed(cluster: Cluster, *words: str) -> int:
    return main(["dra", "show", "--kubeconfig", str(cluster.kubeconfig()), *words])


def test_it_shows_who_has_what_and_why_the_rest_does_not_fit(
    published_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(published_cluster) == 0
    shown = capsys.readouterr().out
    assert f"node n1  driver {NAMING.driver}  pool {POOL}" in shown
    assert "allocated  3g.20gb at 4:4  claim default/train  pods default/train-0" in shown
    assert "3g.20gb: 1" in shown
    assert "7g.40gb: claim default/train has room that it needs" in shown
    assert typed(published_cluster, "n1", "-o", "json") == 0
    document = msgspec.json.decode(capsys.readouterr().out)
    (gpu,) = document["pools"][0]["gpus"]
    assert (document["kind"], gpu["allocated"][0]["claim"]) == ("DraPools", "default/train")


def test_a_node_or_a_cluster_without_gpus_is_refused_with_what_to_type(
    published_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(published_cluster, "n2") == 20
    assert "no resource slice of node n2 has a GPU" in capsys.readouterr().err
    for each in published_cluster.must("GET", SLICES)["items"]:
        published_cluster.must("DELETE", f"{SLICES}/{each['metadata']['name']}")
    assert typed(published_cluster) == 20
    assert "kubectl get resourceslices" in capsys.readouterr().err


def classes(cluster: Cluster, *words: str) -> int:
    return main(["dra", "classes", "--kubeconfig", str(cluster.kubeconfig()), "--dra-driver", NAMING.driver, *words])


def test_the_classes_of_what_the_cluster_publishes_can_be_applied(
    published_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classes(published_cluster) == 0
    text = capsys.readouterr().out
    made = list(yaml.safe_load_all(text))
    published_cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=text)
    served = published_cluster.get("/apis/resource.k8s.io/v1/deviceclasses")["items"]
    assert {each["metadata"]["name"]: each["spec"] for each in served} == {
        each["metadata"]["name"]: each["spec"] for each in made
    }
    wanted = f"mig-3g.20gb.{NAMING.parent_class}"
    (half,) = (each["spec"] for each in made if each["metadata"]["name"] == wanted)
    assert half["extendedResourceName"] == "nvidia.com/mig-3g.20gb"


def test_the_classes_of_a_family_need_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dra", "classes", "h100-80gb-sxm", "--claims-only", "-o", "json"]) == 0
    items = msgspec.json.decode(capsys.readouterr().out)["items"]
    assert "mig-1g.10gb.aliquot.dev" in [each["metadata"]["name"] for each in items]
    assert not [each for each in items if "extendedResourceName" in each["spec"]]
    assert main(["dra", "classes", "h100-80gb"]) == 2
    assert "aliquot catalog show a100-80gb" in capsys.readouterr().err


def test_without_slices_of_the_driver_the_command_with_a_family_is_named(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert classes(cluster) == 20
    assert "aliquot dra classes h100-80gb-sxm" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gpu", "GPU.example", "gpu.example' || true", "g" * 60 + ".dev"])
def test_a_driver_that_no_class_can_name_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dra", "classes", "h100-80gb-sxm", "--dra-driver", name]) == 2
    assert "aliquot dra classes --dra-driver gpu.aliquot.dev" in capsys.readouterr().err
