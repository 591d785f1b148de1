"""ResourceClaims in a cluster, with the status that the scheduler, kubelet and a driver would give them."""

from __future__ import annotations

from typing import Any

from support.cluster import Cluster

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def create_claim(cluster: Cluster, body: dict[str, Any]) -> str:
    """Create a claim of ``support.admissions.resource_claim`` with its status, and return its path."""
    request = {"name": "vgpu", "exactly": {"deviceClassName": "vgpu.aliquot.dev"}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": body["metadata"]}
    cluster.must("POST", CLAIMS, head | {"spec": {"devices": {"requests": [request]}}})
    status, path = body["status"], f"{CLAIMS}/{body['metadata']['name']}"
    (result,) = status["allocation"]["devices"]["results"]
    node = result["pool"].removesuffix("-aliquot")
    results = [{field: value for field, value in result.items() if field != "adminAccess"}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    place = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    reserved = [each | {"uid": f"u-{each['name']}"} for each in status["reservedFor"]]
    allocation = {"devices": {"results": results}, "nodeSelector": place}
    cluster.must("PATCH", f"{path}/status", {"status": status | {"allocation": allocation, "reservedFor": reserved}})
    return path
