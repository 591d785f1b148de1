"""The definitions of Harvester's kinds in an API server: what it accepts, what it refuses, what kubectl shows."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from support.cluster import Cluster

JSON = dict[str, Any]
API = "/apis/devices.harvesterhci.io/v1beta1"
NODE, ADDRESS = "harvester-82cd7", "0000:08:00.0"
NAME = names.object_name(NODE, ADDRESS)
LABELS = {"nodename": NODE}
GPU: JSON = {"address": ADDRESS, "enabled": False, "nodeName": NODE}
VGPU: JSON = {
    "address": "0000:08:00.4",
    "enabled": False,
    "nodeName": NODE,
    "parentGPUDeviceAddress": ADDRESS,
    "vGPUTypeName": "",
}
MIG: JSON = {
    "enabled": False,
    "gpuAddress": ADDRESS,
    "nodeName": NODE,
    "profileSpec": [
        {"id": 19, "name": "MIG 1g.5gb", "requested": 6},
        {"id": 20, "name": "MIG 1g.5gb+me", "requested": 1},
    ],
}
CLAIM: JSON = {"address": ADDRESS, "nodeName": NODE, "userName": "admin"}
SPECS: dict[str, tuple[str, JSON]] = {
    "sriovgpudevices": ("SRIOVGPUDevice", GPU),
    "vgpudevices": ("VGPUDevice", VGPU),
    "migconfigurations": ("MigConfiguration", MIG),
    "pcideviceclaims": ("PCIDeviceClaim", CLAIM),
}


@pytest.fixture
def server(cluster: Cluster) -> Cluster:
    install(cluster)
    return cluster


def install(cluster: Cluster) -> None:
    cluster.apply(crds.definitions())
    cluster.wait(lambda: all_served(cluster), "the definitions")


def all_served(cluster: Cluster) -> bool:
    plurals = [definition["spec"]["names"]["plural"] for definition in crds.definitions()]
    return all(cluster.request("GET", f"{API}/{plural}").status == 200 for plural in plurals)


def thing(plural: str, name: str = "", **spec: Any) -> JSON:
    kind, usual = SPECS[plural]
    body = usual | spec
    address = str(body.get("address") or body.get("gpuAddress"))
    metadata = {"name": name or names.object_name(body["nodeName"], address), "labels": LABELS}
    return {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": kind, "metadata": metadata, "spec": body}


@pytest.mark.parametrize("plural", SPECS)
def test_an_object_is_kept_as_it_is_written(server: Cluster, plural: str) -> None:
    written = thing(plural)
    read = server.must("POST", f"{API}/{plural}?fieldValidation=Strict", written)
    assert read["spec"] == written["spec"]


def test_columns_are_those_of_the_original(server: Cluster) -> None:
    wanted = {
        "pcidevices": "Address|Vendor Id|Device Id|Node Name|Description|Kernel Driver In Use",
        "pcideviceclaims": "Address|Node Name|User Name|Kernel Driver \u03a4\u03bf Unbind|Passthrough Enabled",
        "sriovgpudevices": "Address|Node Name|Enabled|VGPUDevices",
        "vgpudevices": "Address|Node Name|Enabled|UUID|VGPUType|ParentGPUDevice",
        "migconfigurations": "Node Name|Address|Enabled|Status|Message",
    }
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    for plural, headers in wanted.items():
        columns = server.must("GET", f"{API}/{plural}", headers=accept)["columnDefinitions"]
        assert [column["name"] for column in columns] == ["Name", *headers.split("|")]
        assert {column["type"] for column in columns} == {"string"}


def test_kubectl_shows_the_table_of_the_design_document(server: Cluster) -> None:
    path = f"{API}/vgpudevices"
    made = server.must("POST", path, thing("vgpudevices", enabled=True, vGPUTypeName="NVIDIA A2-8Q"))
    status = {"configureVGPUTypeName": "NVIDIA A2-8Q", "uuid": "5b5b7326-6bb8-48cb-a321-8fa58ccbb38c"}
    status |= {"vGPUStatus": "vGPUConfigured"}
    server.must("PATCH", f"{path}/{made['metadata']['name']}/status", {"status": status})
    server.must("POST", path, thing("vgpudevices", address="0000:08:00.5"))
    header, first, second = server.kubectl("get", "vgpudevices.devices.harvesterhci.io").splitlines()
    assert header.split() == ["NAME", "ADDRESS", "NODE", "NAME", "ENABLED", "UUID", "VGPUTYPE", "PARENTGPUDEVICE"]
    assert first.split() == [
        "harvester-82cd7-000008004", "0000:08:00.4", NODE, "true", status["uuid"], "NVIDIA", "A2-8Q", ADDRESS,
    ]  # fmt: skip
    assert second.split() == ["harvester-82cd7-000008005", "0000:08:00.5", NODE, "false", ADDRESS]


def test_kubectl_shows_a_list_as_json_and_explains_a_field(server: Cluster) -> None:
    path = f"{API}/sriovgpudevices"
    name = server.must("POST", path, thing("sriovgpudevices"))["metadata"]["name"]
    server.must("PATCH", f"{path}/{name}/status", {"status": {"vGPUDevices": ["one", "two"]}})
    assert server.kubectl("get", "sriovgpudevices").splitlines()[1].split()[-1] == '["one","two"]'
    answer = server.kubectl("explain", "migconfiguration.spec.profileSpec.requested")
    assert "How many instances there should be." in answer


def test_a_status_keeps_what_a_newer_pcidevices_wrote(server: Cluster) -> None:
    name = server.must("POST", f"{API}/migconfigurations", thing("migconfigurations"))["metadata"]["name"]
    status = {
        "status": "synced",
        "profileStatus": [{"available": 0, "id": 19, "name": "MIG 1g.5gb", "total": 7, "vGPUID": ["7"]}],
        "conditions": [{"type": "Synced", "status": "True", "reason": "AsWished", "message": ""}],
        "observedGeneration": 1,
        "newerField": {"a": ["b"]},
    }
    assert server.must("PATCH", f"{API}/migconfigurations/{name}/status", {"status": status})["status"] == status
    main = server.must("PATCH", f"{API}/migconfigurations/{name}", {"status": {"status": ""}})
    assert main["status"] == status


def test_defaults_are_shown_and_nulls_of_others_are_none(server: Cluster) -> None:
    bare = thing("vgpudevices")
    bare["spec"] = {key: VGPU[key] for key in ("address", "nodeName", "parentGPUDeviceAddress")} | {
        "vGPUTypeName": None
    }
    assert server.must("POST", f"{API}/vgpudevices", bare)["spec"] == VGPU
    mig = thing("migconfigurations", profileSpec=None)
    assert "profileSpec" not in server.must("POST", f"{API}/migconfigurations", mig)["spec"]


REFUSED: list[tuple[str, JSON, str]] = [
    ("sriovgpudevices", {"address": "08:00.0"}, "spec.address"),
    ("sriovgpudevices", {"address": "0000:08:00.G"}, "spec.address"),
    ("sriovgpudevices", {"nodeName": "Node_1"}, "spec.nodeName"),
    ("sriovgpudevices", {"enabled": "yes"}, "spec.enabled"),
    ("sriovgpudevices", {"enable": True}, "enable"),
    ("vgpudevices", {"parentGPUDeviceAddress": ""}, "spec.parentGPUDeviceAddress"),
    ("vgpudevices", {"vGPUTypeName": "x" * 129}, "spec.vGPUTypeName"),
    ("migconfigurations", {"profileSpec": [{"id": 19, "name": "MIG 1g.5gb", "requested": -1}]}, "requested"),
    ("migconfigurations", {"profileSpec": [{"id": 19, "name": "a"}, {"id": 19, "name": "b"}]}, "Duplicate"),
    ("migconfigurations", {"profileSpec": [{"name": "MIG 1g.5gb"}]}, "id"),
    ("pcideviceclaims", {"disableResourcePooling": "no"}, "disableResourcePooling"),
]


@pytest.mark.parametrize(("plural", "spec", "word"), REFUSED)
def test_what_no_agent_could_apply_is_refused(server: Cluster, plural: str, spec: JSON, word: str) -> None:
    answer = server.request("POST", f"{API}/{plural}?fieldValidation=Strict", thing(plural, NAME, **spec))
    assert answer.status in (400, 422)
    assert word in answer.body["message"]


@pytest.mark.parametrize("plural", SPECS)
def test_a_name_that_no_agent_looks_for_is_refused(server: Cluster, plural: str) -> None:
    answer = server.request("POST", f"{API}/{plural}", thing(plural, "my-gpu"))
    assert answer.status == 422
    assert "the name must be spec.nodeName, a hyphen" in answer.body["message"]


@pytest.mark.parametrize("plural", SPECS)
def test_the_function_that_an_object_is_about_never_changes(server: Cluster, plural: str) -> None:
    made = server.must("POST", f"{API}/{plural}", thing(plural))
    fixed = [key for key in made["spec"] if key.lower().endswith(("address", "nodename"))]
    assert len(fixed) >= 2
    for key in fixed:
        other = "other-node" if key == "nodeName" else "0000:09:00.0"
        path = f"{API}/{plural}/{made['metadata']['name']}"
        answer = server.request("PATCH", path, {"spec": {key: other}})
        assert answer.status == 422
        assert f"{key} cannot change" in answer.body["message"]
        assert server.request("PATCH", path, {"spec": {key: None}}).status == 422


@pytest.mark.parametrize(
    ("plural", "status"),
    [
        ("migconfigurations", {"status": "error"}),
        ("vgpudevices", {"vGPUStatus": "done"}),
        ("sriovgpudevices", {"conditions": [{"type": "Ready", "status": "yes"}]}),
    ],
)
def test_an_unknown_status_word_is_refused(server: Cluster, plural: str, status: JSON) -> None:
    name = server.must("POST", f"{API}/{plural}", thing(plural))["metadata"]["name"]
    assert server.request("PATCH", f"{API}/{plural}/{name}/status", {"status": status}).status == 422


def original(definition: JSON) -> JSON:
    """Return the definition as pcidevices creates it: the same kind without any rule."""
    found = copy.deepcopy(definition)
    (version,) = found["spec"]["versions"]
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}}
    return found


def test_the_definitions_of_a_live_pcidevices_are_replaced_over_its_objects(cluster: Cluster) -> None:
    # Also over an object with a user's own name: it can be changed, and its finalizer can be removed.
    cluster.apply([original(definition) for definition in crds.definitions()])
    cluster.wait(lambda: all_served(cluster), "the definitions")
    odd = thing("pcideviceclaims", "my-claim")
    odd["metadata"]["finalizers"] = [names.CLAIM_FINALIZER]
    for item in (thing("sriovgpudevices"), thing("vgpudevices"), thing("migconfigurations", profileSpec=None), odd):
        cluster.must("POST", f"{API}/{item['kind'].lower()}s", item)
    install(cluster)
    path = f"{API}/pcideviceclaims/my-claim"
    misnamed = thing("sriovgpudevices", "my-gpu")
    cluster.wait(lambda: cluster.request("POST", f"{API}/sriovgpudevices?dryRun=All", misnamed).status == 422)
    assert cluster.must("GET", f"{API}/vgpudevices/{NODE}-000008004")["spec"] == VGPU
    mig = cluster.must("PATCH", f"{API}/migconfigurations/{NAME}", {"spec": {"enabled": True}})
    assert json.dumps(mig["spec"], sort_keys=True) == json.dumps(
        {"enabled": True, "gpuAddress": ADDRESS, "nodeName": NODE}, sort_keys=True
    )
    cluster.must("PATCH", path, {"spec": {"userName": "bob"}})
    cluster.must("DELETE", path)
    cluster.must("PATCH", path, {"metadata": {"finalizers": None}})
    assert cluster.request("GET", path).status == 404
