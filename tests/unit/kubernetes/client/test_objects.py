"""Structs that read a part of a server's objects, and the API path of each kind."""

from __future__ import annotations

import json
from typing import ClassVar

import msgspec
import pytest

from aliquot.kubernetes.client.codec import decode, decode_list
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.object_base import ResourceType
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap, Event, KubeObject, Lease, Node, Pod
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice

POD = {
    "metadata": {
        "name": "cuda", "namespace": "team", "uid": "u", "deletionTimestamp": "2026-11-21T14:45:17Z",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d",
                             "uid": "v", "controller": True}],
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}],
    },
    "spec": {
        "nodeName": "n1", "hostPID": True, "nodeSelector": {"a": "b"}, "terminationGracePeriodSeconds": 5,
        "initContainers": [{"name": "wait"}],
        "containers": [{
            "name": "main", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}, "claims": [{"name": "gpu"}]},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        }],
        "volumes": [{"name": "c", "configMap": {"name": "m"}}, {"name": "h", "hostPath": {"path": "/dev"}},
                    {"name": "e", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}],
    },
    "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True, "containerID": "c://1"}]},
}  # fmt: skip


def test_a_pod() -> None:
    pod = decode(json.dumps(POD).encode(), Pod)
    assert pod.key == ("team", "cuda")
    assert pod.metadata.deletion_timestamp == "2026-11-21T14:45:17Z"
    assert (pod.metadata.owner_references[0].kind, pod.metadata.owner_references[0].controller) == ("DaemonSet", True)
    main = pod.spec.containers[0]
    assert main.resources.limits == {"nvidia.com/mig-1g.5gb": "1"}
    assert main.resources.claims[0].name == "gpu"
    assert main.env[1].value_from == {"fieldRef": {"fieldPath": "x"}}
    assert (pod.spec.host_pid, pod.spec.termination_grace_period_seconds, pod.spec.node_name) == (True, 5, "n1")
    config, host, empty = pod.spec.volumes
    assert config.config_map is not None
    assert config.config_map.name == "m"
    assert host.host_path is not None
    assert host.host_path.path == "/dev"
    assert empty.empty_dir == {}
    assert pod.status.container_statuses[0].container_id == "c://1"


def test_a_node() -> None:
    body = {
        "metadata": {"name": "n", "resourceVersion": "5", "labels": {"nvidia.com/mig.config": "all-1g.5gb"}},
        "spec": {"providerID": "p", "unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": "7"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.36.2"},
        },
    }
    node = decode(json.dumps(body).encode(), Node)
    assert node.metadata.labels == {"nvidia.com/mig.config": "all-1g.5gb"}
    assert (node.spec.unschedulable, node.spec.taints[0].key, node.spec.provider_id) == (True, "k", "p")
    assert node.status.allocatable == {"nvidia.com/gpu": "7"}
    assert (node.status.node_info.boot_id, node.status.conditions[0].status) == ("b", "True")


def test_what_operators_bring_along() -> None:
    policy = {
        "metadata": {"name": "cluster-policy"},
        "spec": {
            "mig": {"strategy": "mixed"},
            "migManager": {
                "enabled": False, "config": {"name": "mine", "default": "all-disabled"},
                "gpuClientsConfig": {"name": "clients"}, "env": [{"name": "WITH_REBOOT", "value": "true"}],
            },
        },
    }  # fmt: skip
    manager = decode(json.dumps(policy).encode(), ClusterPolicy).spec.mig_manager
    assert (manager.enabled, manager.config.name, manager.config.default) == (False, "mine", "all-disabled")
    assert (manager.gpu_clients_config.name, manager.env[0].value) == ("clients", "true")
    assert decode(b"{}", ClusterPolicy).spec.mig_manager.enabled is None
    device = decode(b'{"spec":{"address":"0000:08:00.0","nodeName":"n","enabled":true}}', SRIOVGPUDevice)
    assert (device.spec.address, device.spec.node_name, device.spec.enabled) == ("0000:08:00.0", "n", True)


def test_null_counts_as_absent_as_it_does_in_go() -> None:
    body = b'{"metadata":{"name":"n","labels":null,"ownerReferences":null},"spec":null,"status":{"conditions":null}}'
    assert decode(body, Node) == decode(b'{"metadata":{"name":"n"}}', Node)
    assert decode_list(b'{"metadata":{"resourceVersion":"1"},"items":null}', Node).items == ()


def test_what_is_wrong_is_reported_with_its_place() -> None:
    with pytest.raises(ApiError, match=r"sent a Node that cannot be read.*\$\.metadata\.labels"):
        decode(b'{"metadata":{"labels":[1]}}', Node)


class _OnlyTheData(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ConfigMap.TYPE

    data: dict[str, str] = msgspec.field(default_factory=dict)


class _Answer(msgspec.Struct, frozen=True):
    allowed: bool


def test_what_is_wrong_is_reported_by_the_kind_in_kubernetes_not_by_the_name_of_our_class() -> None:
    with pytest.raises(ApiError, match=r"sent a ConfigMap that cannot be read"):
        decode(b'{"data":[]}', _OnlyTheData)
    with pytest.raises(ApiError, match=r"sent a ConfigMapList that cannot be read.*\$\.items\[0\]"):
        decode_list(b'{"items":[{"data":[]}]}', _OnlyTheData)
    with pytest.raises(ApiError, match=r"sent a ConfigMapList that cannot be read: it is nested too deeply"):
        decode_list(b'{"items":[{"spec":' + b'{"a":' * 9_999 + b"1" + b"}" * 10_002 + b"]}", _OnlyTheData)
    with pytest.raises(ApiError, match=r"sent a reply that cannot be read"):
        decode(b'{"allowed":1}', _Answer)


@pytest.mark.parametrize(
    ("kind", "path", "kubectl"),
    [
        (Node, "/api/v1/nodes/x", "nodes"),
        (Pod, "/api/v1/namespaces/ns/pods/x", "pods"),
        (ConfigMap, "/api/v1/namespaces/ns/configmaps/x", "configmaps"),
        (Event, "/api/v1/namespaces/ns/events/x", "events"),
        (Lease, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/x", "leases.coordination.k8s.io"),
        (ClusterPolicy, "/apis/nvidia.com/v1/clusterpolicies/x", "clusterpolicies.nvidia.com"),
        (
            SRIOVGPUDevice,
            "/apis/devices.harvesterhci.io/v1beta1/sriovgpudevices/x",
            "sriovgpudevices.devices.harvesterhci.io",
        ),
    ],
)
def test_where_a_kind_lives(kind: type[KubeObject], path: str, kubectl: str) -> None:
    assert kind.TYPE.path("ns", "x") == path
    assert str(kind.TYPE) == kubectl
    assert kind.TYPE.path() == path.removesuffix("/x").replace("/namespaces/ns", "")
