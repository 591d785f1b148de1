"""What differs from one installation to the next. Everything else in the manifests is the same everywhere."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.gpu import names

Object = dict[str, Any]

AGENT = "nvidia-mig-manager"
"""The DaemonSet's, container's and ``app`` label's name: what scripts and people select by today."""
AGENT_ACCOUNT = "aliquot-agent"
CONTROLLER = "aliquot-controller"
DEVICES = "aliquot-devices"
"""The devices agent's DaemonSet, container, ``app`` label and ServiceAccount; and the ConfigMap that switches the
controller's side of it on.
"""
WEBHOOK = "aliquot-webhook"
"""The Service before the controller's HTTPS port, the Secret with its certificate, and both webhook configurations."""
DASHBOARD = "aliquot-dashboard"
"""The web page's Deployment, container, ``app`` label, Service and ServiceAccount."""
HARVESTER = "harvester-system"
"""The namespace of Harvester's own things: the KubeVirt object, the driver's pods, pcidevices."""


IMAGE = "IMAGE"
"""Stands for the image in the manifests, which have none: no registry is known. It is not a name that can be pulled."""


class Values(msgspec.Struct, frozen=True):
    """``namespace`` is the GPU Operator's own, so that its operands, ConfigMaps and our pods are neighbours. ``port``
    serves health and metrics, ``https_port`` admission and capacity. ``daemon_set``, ``fallback_map`` and
    ``clients_made`` are names of objects, ``clients_map`` is that of the ConfigMap that is mounted. ``driver`` says
    where the devices agent finds the driver's programs: ``auto``, ``pod`` (in ``driver_namespace``) or ``local``.
    ``certificates`` is the folder with the webhooks' certificate, empty where the controller makes its own.
    """

    namespace: str = "gpu-operator"
    image: str = IMAGE
    port: int = 8080
    https_port: int = 8443
    strategy: str = "single"
    with_reboot: str = "false"
    stop_host_clients: str = "false"
    cdi: str = "true"
    daemon_set: str = AGENT
    fallback_map: str = names.DEFAULT_CONFIG_MAP
    clients_made: str = names.DEFAULT_CLIENTS_MAP
    clients_map: str = names.DEFAULT_CLIENTS_MAP
    driver_namespace: str = HARVESTER
    kubevirt_namespace: str = HARVESTER
    driver: str = "auto"
    certificates: str = ""
    cdi_hook: str = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"

    def account(self, name: str) -> str:
        """The user name of a ServiceAccount."""
        return f"system:serviceaccount:{self.namespace}:{name}"


NAMES_BESIDE_OPERATOR = {
    AGENT: "aliquot-agent",
    names.DEFAULT_CONFIG_MAP: "aliquot-default-mig-parted-config",
    names.DEFAULT_CLIENTS_MAP: "aliquot-default-gpu-clients",
}
"""Other names, for clusters where the GPU Operator stays: while its MIG manager is turned off it deletes what has that
one's names in its namespace, at each of its rounds. Source: GPU Operator, controllers/object_controls.go.
"""


def beside_operator() -> Values:
    clients = NAMES_BESIDE_OPERATOR[names.DEFAULT_CLIENTS_MAP]
    return Values(
        daemon_set=NAMES_BESIDE_OPERATOR[AGENT],
        fallback_map=NAMES_BESIDE_OPERATOR[names.DEFAULT_CONFIG_MAP],
        clients_made=clients,
        clients_map=clients,
    )


def labels(component: str, app: str = "") -> dict[str, str]:
    """The labels of an object; with ``app`` those of a pod, too."""
    common = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": component}
    return ({"app": app} if app else {}) | common


def metadata(name: str, component: str, namespace: str = "") -> Object:
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(component)}
