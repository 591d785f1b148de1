"""Requests that correct objects, before an API server that validates each one by the definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.kinds.harvester import KINDS
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester.node_view import ObjectChange
from support.cluster import Cluster
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, Store

JSON = dict[str, Any]
TYPES = {kind.TYPE.kind: kind.TYPE for kind in KINDS}
A2, A100, L40S = "0000:08:00.0", "0000:04:00.0", "0000:26:00.0"


class Served(Store):
    """Objects of an API server: reads are its answers, and a refusal fails the test."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def _path(self, kind: str, name: str = "") -> str:
        return TYPES[kind].path(name=name or None)

    def _took(self, kind: str, answer: JSON) -> None:
        self.objects[kind, answer["metadata"]["name"]] = answer

    def create(self, kind: str, body: JSON) -> None:
        head = {"apiVersion": TYPES[kind].api_version, "kind": kind}
        self._took(kind, self._cluster.must("POST", self._path(kind) + "?fieldValidation=Strict", {**head, **body}))

    def patch(self, kind: str, name: str, patch: JSON) -> None:
        answer = self._cluster.must("PATCH", self._path(kind, name) + "?fieldValidation=Strict", patch)
        self._took(kind, answer)
        self._gone(kind, name)

    def apply(self, change: ObjectChange) -> None:
        self.written.append(change)
        if change.verb == "status":
            path = f"{self._path(change.kind, change.name)}/status?fieldValidation=Strict"
            self._took(change.kind, self._cluster.must("PATCH", path, change.body))
        elif change.verb == "create":
            self.create(change.kind, change.body)
        elif change.verb == "delete":
            self.delete(change.kind, change.name)
        else:
            self.patch(change.kind, change.name, change.body)

    def delete(self, kind: str, name: str) -> None:
        self._cluster.must("DELETE", self._path(kind, name))
        self._gone(kind, name)

    def _gone(self, kind: str, name: str) -> None:
        answer = self._cluster.request("GET", self._path(kind, name))
        if answer.status == 404:
            self.objects.pop((kind, name), None)
        else:
            self._took(kind, answer.body)


@pytest.fixture
def store(cluster: Cluster) -> Served:
    cluster.apply(crds.all_definitions())
    plurals = [kind.TYPE for kind in KINDS]
    cluster.wait(lambda: all(cluster.request("GET", of.path()).status == 200 for of in plurals), "the definitions")
    return Served(cluster)


def node(template: str, name: str, address: str, directory: Path, store: Served) -> One:
    one = One(template, directory / name, name, address)
    one.store = store
    return one.settle()


def test_a_life_with_mdevs(store: Served, tmp_path: Path) -> None:
    # On, configured, refused, off, claimed, given back: every object is accepted as it is written, and reads the same.
    one = node("a2:mdev", "harvester-82cd7", A2, tmp_path, store)
    gpu, first, second = (f"harvester-82cd7-00000800{n}" for n in (0, 4, 5))
    one.kubectl("SRIOVGPUDevice", gpu, enabled=True)
    one.kubectl("VGPUDevice", first, enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    one.kubectl("VGPUDevice", second, enabled=True, vGPUTypeName="NVIDIA A2-8Q")
    assert store.get("VGPUDevice", first)["status"]["vGPUStatus"] == "vGPUConfigured"
    assert one.publish() == 0, "what the server keeps is what was written"
    for name in (first, second):
        one.kubectl("VGPUDevice", name, enabled=False, vGPUTypeName="")
    one.kubectl("SRIOVGPUDevice", gpu, enabled=False)
    assert store.of("VGPUDevice") == {}
    claim = {"address": A2, "nodeName": "harvester-82cd7", "userName": "admin"}
    store.create("PCIDeviceClaim", {"metadata": {"name": gpu}, "spec": claim})
    one.settle()
    assert store.get("PCIDeviceClaim", gpu)["status"]["passthroughEnabled"] is True
    store.delete("PCIDeviceClaim", gpu)
    one.settle()
    assert store.of("PCIDeviceClaim") == {}


def test_a_life_with_vendor_vfio_and_with_mig(store: Served, tmp_path: Path) -> None:
    # Two nodes: neither writes the other's objects, though both see all of them.
    l40s = node("l40s:vfio", "one", L40S, tmp_path, store)
    a100 = node("a100-sxm4-40gb:vfio", "two", A100, tmp_path, store)
    l40s.kubectl("SRIOVGPUDevice", "one-000026000", enabled=True)
    l40s.kubectl("VGPUDevice", "one-000026004", enabled=True, vGPUTypeName="NVIDIA L40S-12A")
    owners = store.get("PCIDeviceClaim", "one-000026004")["metadata"]["ownerReferences"]
    assert [o["kind"] for o in owners] == ["PCIDevice", "VGPUDevice"]
    a100.kubectl("SRIOVGPUDevice", "two-000004000", enabled=True)
    mig = store.get("MigConfiguration", "two-000004000")
    rows = [{**p, "requested": 2 if p["id"] == 9 else 0} for p in mig["spec"]["profileSpec"]]
    a100.kubectl("MigConfiguration", "two-000004000", enabled=True, profileSpec=rows)
    assert store.get("MigConfiguration", "two-000004000")["status"]["status"] == "synced"
    a100.destroy_by_hand(A100, 1)
    a100.settle()
    assert store.get("MigConfiguration", "two-000004000")["status"]["status"] == "out-of-sync"
    written = len(store.written)
    l40s.settle()
    assert len(store.written) == written
