"""DaemonSet that installs NVIDIA's vGPU host driver with Harvester's driver toolkit image. Only the chart has it: the
driver is licensed software, and only its owner knows the URL.

Source: harvester/charts, nvidia-driver-runtime (names, mounts, variables). The label ``app`` and the container's name
stay, because the original's agents and ours find the driver by them.
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
"""The name of the DaemonSet and the account, and the value of the label ``app``."""
BARE_METAL_LABEL = "harvesterhci.io/gpu-baremetal-workloads"
"""On a node, ``true``: its GPUs are used without VMs, and their driver has another source."""
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
    """Image and driver of the DaemonSet."""

    image: str
    location: str
    """URL of the vGPU host driver's ``.run`` file."""


def objects(values: Values, toolkit: DriverToolkit) -> list[Object]:
    """Return the account, its right to read nodes, and the DaemonSet."""
    everywhere = metadata(NAME, _COMPONENT)
    nodes = RbacRight(NAME, CLUSTER, "", "nodes", READ, "read the node's own choice of a driver")
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
            # a driver under running VMs is replaced when its node is drained, not when the chart is upgraded
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
