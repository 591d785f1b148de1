"""Values that differ from one installation to the next. The rest of the manifests is the same everywhere."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.gpu import names

Object = dict[str, Any]

AGENT = "nvidia-mig-manager"
"""The name of the DaemonSet, the container and the label ``app``, by which existing scripts select."""
AGENT_ACCOUNT = "aliquot-agent"
CONTROLLER = "aliquot-controller"
DEVICES = "aliquot-devices"
"""The devices agent's DaemonSet, container, ``app`` label and ServiceAccount, and the ConfigMap that enables the
controller's part for VMs.
"""
WEBHOOK = "aliquot-webhook"
"""The Service of the controller's HTTPS port, the Secret with its certificate, and both webhook configurations."""
EXTENDER = "aliquot-extender"
"""The Service of the controller's scheduler extender, and the ConfigMap that turns it on."""
CLAIMS = "aliquot-claims"
"""The claim agent's DaemonSet, container and ``app`` label. Its account is the agent's."""
VGPUS = "nvidia-vgpu-device-manager"
"""The container and ``app`` label of the agent for vGPUs, by which existing scripts select. Its account is the
agent's.
"""
VGPUS_DAEMON_SET = "aliquot-vgpus"
"""Its DaemonSet. The operator deletes one with the name of its own manager while that is disabled."""
DASHBOARD = "aliquot-dashboard"
"""The web page's Deployment, container, ``app`` label, Service and ServiceAccount."""
HARVESTER = "harvester-system"
"""The namespace of Harvester's own objects: the KubeVirt object, the driver's pods, pcidevices."""


IMAGE = "IMAGE"
"""Placeholder for the image in the manifests, because no registry is known. It is not a valid image name."""


class Values(msgspec.Struct, frozen=True):
    """Values of an installation."""

    namespace: str = "gpu-operator"
    """The GPU Operator's namespace, which has its operands and ConfigMaps."""
    image: str = IMAGE
    port: int = 8080
    """Port of health and metrics."""
    https_port: int = 8443
    """Port of admission webhooks and capacity."""
    extender_port: int = 8444
    """Port of the scheduler extender."""
    extender_score: str = "fragmentation"
    extender_certificates: str = ""
    """The folder with the extender's certificate, empty if each controller makes its own."""
    strategy: str = "single"
    with_reboot: str = "false"
    stop_host_clients: str = "false"
    cdi: str = "true"
    daemon_set: str = AGENT
    fallback_map: str = names.DEFAULT_CONFIG_MAP
    clients_made: str = names.DEFAULT_CLIENTS_MAP
    clients_map: str = names.DEFAULT_CLIENTS_MAP
    """Name of the ConfigMap that is mounted."""
    driver_namespace: str = HARVESTER
    kubevirt_namespace: str = HARVESTER
    driver: str = "auto"
    """Where the devices agent finds the driver's programs: ``auto``, ``pod`` (in ``driver_namespace``) or ``local``."""
    all_devices: str = "false"
    """``true``: the devices agent serves the devices of all vendors, in place of Harvester's pcidevices."""
    certificates: str = ""
    """The folder with the webhooks' certificate, empty if the controller creates its own."""
    plugin_nodes: tuple[str, str] = ("NotIn", "dra")
    claim_nodes: tuple[str, str] = ("In", "dra")
    """Operator and value by which the label agent and the claim agent select nodes by ``aliquot.dev/allocation``. The
    agent with ``NotIn`` also serves nodes without that label.
    """
    dra_driver: str = "gpu.aliquot.dev"
    dra_score: str = "fragmentation"
    dra_mode_changes: str = "without-reset"
    dra_vms: str = ""
    vgpu_default_config: str = ""
    """The named config of a node for VMs without the label ``nvidia.com/vgpu.config``; empty for none."""
    cdi_hook: str = "/usr/local/nvidia/toolkit/nvidia-cdi-hook"

    def account(self, name: str) -> str:
        """Return the user name of a ServiceAccount."""
        return f"system:serviceaccount:{self.namespace}:{name}"


NAMES_BESIDE_OPERATOR = {
    AGENT: "aliquot-agent",
    names.DEFAULT_CONFIG_MAP: "aliquot-default-mig-parted-config",
    names.DEFAULT_CLIENTS_MAP: "aliquot-default-gpu-clients",
}
"""Other names, for clusters that keep the GPU Operator. While the operator's MIG manager is disabled, every reconcile
of the operator deletes objects with that manager's names in its namespace. Source: GPU Operator,
controllers/object_controls.go.
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
    """Return the labels of an object; with ``app`` those of a pod."""
    common = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": component}
    return ({"app": app} if app else {}) | common


def metadata(name: str, component: str, namespace: str = "") -> Object:
    return {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": labels(component)}
