"""A DaemonSet that installs NVIDIA's vGPU host driver, with Harvester's driver toolkit image. For the chart alone: the
driver is licensed software that its owner serves, and only its owner knows where.

Source: harvester/charts, nvidia-driver-runtime (names, mounts, variables). The label ``app`` and the container's name
are kept: by them agents, the original's and ours, find the driver.
"""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.manifests import access
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, READ, RbacRight
from aliquot.kubernetes.manifests.rbac_vms import CONTAINER
from aliquot.kubernetes.manifests.values import Object, Values, metadata
from aliquot.kubernetes.manifests.workload import pod_field_variables

NAME = "nvidia-driver-daemonset"
"""The DaemonSet's, account's and ``app`` label's name."""
BARE_METAL_LABEL = "harvesterhci.io/gpu-baremetal-workloads"
"""On a node, ``true``: its GPUs are used without virtual machines, and their driver comes from elsewhere."""
_COMPONENT = "driver"
_PATHS = (
    ("var-log", "/var/log", "/var/log", ""),
    ("dev-log", "/dev/log", "/dev/log", ""),
    ("host-os-release", "/etc/os-release", "/host-etc/os-release", ""),
    ("host-sys", "/sys", "/sys", "Directory"),
    (
        "firmware-search-path",
        "/sys/module/firmware_class/parameters/path",
        "/sys/module/firmware_class/parameters/path",
        "",
    ),
    ("nv-firmware", "/run/nvidia/driver/lib/firmware", "/lib/firmware", "DirectoryOrCreate"),
)


class DriverToolkit(msgspec.Struct, frozen=True):
    """``location`` is the URL of the vGPU host driver's ``.run`` file."""

    image: str
    location: str


def objects(values: Values, toolkit: DriverToolkit) -> list[Object]:
    """Its account, its right to read nodes, and the DaemonSet."""
    everywhere = metadata(NAME, _COMPONENT)
    nodes = RbacRight(NAME, CLUSTER, "", "nodes", READ, "a node may name a driver of its own")
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, _COMPONENT, values.namespace)},
        access.role(everywhere, CLUSTER, [nodes]),
        access.binding(NAME, everywhere, CLUSTER, values),
        _daemon_set(values, toolkit),
    ]


def _daemon_set(values: Values, toolkit: DriverToolkit) -> Object:
    meta = metadata(NAME, _COMPONENT, values.namespace)
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            # a driver under running machines is replaced when its node is emptied, not when the chart is upgraded
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"app": NAME} | meta["labels"]}, "spec": _pod(toolkit)},
        },
    }


def _pod(toolkit: DriverToolkit) -> Object:
    volumes = [
        {"name": name, "hostPath": {"path": host} | ({"type": kind} if kind else {})} for name, host, _, kind in _PATHS
    ]
    return {
        "serviceAccountName": NAME,
        "hostPID": True,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _node_selector()}},
        "containers": [_container(toolkit)],
        "volumes": volumes,
    }


def _node_selector() -> Object:
    needed = {"key": names.DRIVER_NEEDED_LABEL, "operator": "In", "values": ["true"]}
    free = {"key": BARE_METAL_LABEL, "operator": "NotIn", "values": ["true"]}
    return {"nodeSelectorTerms": [{"matchExpressions": [needed, free]}]}


def _container(toolkit: DriverToolkit) -> Object:
    mounts: list[Object] = [{"name": name, "mountPath": inside} for name, _, inside, _ in _PATHS]
    return {
        "name": CONTAINER,
        "image": toolkit.image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            *pod_field_variables(NODE_NAME="spec.nodeName"),
            {"name": "DRIVER_LOCATION", "value": toolkit.location},
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": mounts,
    }
