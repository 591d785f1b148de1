"""kube-scheduler and the controllers of dynamic resource allocation on the real server, where their programs are.

What they decide is compared with the allocator in ``support/draallocator`` while it happens.
"""

from __future__ import annotations

import functools
from typing import Any

from support.cluster import RealCluster
from support.draallocator import Published, allocate, allocated_devices
from support.schedulercases import Table, slice_object

JSON = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
NODE = {"metadata": {"name": "n1", "labels": {}}}
SIZE = {"cpu": "8", "memory": "32Gi", "pods": "20"}


def _device(name: str, first: int, size: int) -> str:
    counters = ", ".join(f'"slice-{n}": {{"value": "1"}}' for n in range(first, first + size))
    return (
        f'{{"name": "gpu-#-{name}", "attributes": {{"size": {{"int": {size}}}}},'
        f' "consumesCounters": [{{"counterSet": "gpu-#", "counters": {{{counters}}}}}]}}'
    )


TABLES = {
    "gpu": Table(
        {f"slice-{n}": "1" for n in range(4)},
        (*(_device(f"small-{n}", n, 1) for n in range(4)), _device("large", 0, 4)),
    )
}
HEAD: JSON = {"driver": DRIVER, "pool": "n1-gpus", "count": 2, "where": {"nodeName": "n1"}}
SLICES = [
    slice_object({**HEAD, "name": "n1-0", "counters": [["gpu", 0], ["gpu", 1]]}, TABLES),
    slice_object({**HEAD, "name": "n1-1", "devices": [["gpu", 0], ["gpu", 1]]}, TABLES),
]
CLASSES = {
    name: {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": text}}]},
    }
    for name, text in (
        ("small", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].size == 1"),
        ("large", f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].size == 4"),
    )
}
SPECS = {name: {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": name}}]}} for name in CLASSES}


def pod(name: str, template: str) -> JSON:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "none"}], "resourceClaims": claims},
    }


def claims(cluster: RealCluster) -> list[JSON]:
    found: list[JSON] = cluster.get(f"{RESOURCES}/resourceclaims")["items"]
    return found


def given(cluster: RealCluster, name: str) -> list[str]:
    """Return the devices of a pod that is bound."""
    owned = [one for one in claims(cluster) if one["metadata"]["ownerReferences"][0]["name"] == name]
    return [row["device"] for one in owned for row in one["status"]["allocation"]["devices"]["results"]]


def test_pods_with_claim_templates_come_and_go(scheduled_cluster: RealCluster) -> None:
    cluster = scheduled_cluster
    cluster.must("POST", "/api/v1/nodes", NODE)
    ready = {"allocatable": SIZE, "capacity": SIZE, "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.must("PATCH", "/api/v1/nodes/n1/status", {"status": ready})
    templates = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": spec},
        }
        for name, spec in SPECS.items()
    ]
    cluster.apply([*SLICES, *CLASSES.values(), *templates])
    path = "/api/v1/namespaces/default/pods"

    def decided(name: str) -> str:
        """Return the pod's node, or "refused", or "" if the scheduler has not seen it with its claim."""
        found = cluster.get(f"{path}/{name}")
        texts = [row.get("message", "") for row in found["status"].get("conditions") or []]
        refused = any("cannot allocate all claims" in text for text in texts)
        return str(found["spec"].get("nodeName") or ("refused" if refused else ""))

    for number, kind in enumerate(("small", "large", "small", "large")):
        expected = allocate(
            [{"spec": SPECS[kind]}], NODE, Published(SLICES, CLASSES, allocated_devices(claims(cluster)))
        )
        cluster.must("POST", path, pod(f"p{number}", kind))
        cluster.wait(functools.partial(decided, f"p{number}"), "the scheduler's decision", 30)
        assert decided(f"p{number}") == ("refused" if expected is None else "n1")
        if expected is not None:
            assert given(cluster, f"p{number}") == [row["device"] for row in expected[0]]
    assert [given(cluster, f"p{number}") for number in range(3)] == [
        ["gpu-0-small-0"],
        ["gpu-1-large"],
        ["gpu-0-small-1"],
    ]
    # The claim goes with its pod, and the one that waited gets the GPU.
    cluster.must("DELETE", f"{path}/p1?gracePeriodSeconds=0")
    cluster.wait(lambda: decided("p3") == "n1", "the waiting pod", 30)
    assert given(cluster, "p3") == ["gpu-1-large"]
