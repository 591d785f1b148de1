"""The devices agent's DaemonSet, and the controller's objects for VMs: a ConfigMap and a Service."""

from __future__ import annotations

from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.agent import HOST, agent_container, mounts, volumes
from aliquot.kubernetes.manifests.config_maps import config_map as made
from aliquot.kubernetes.manifests.values import CONTROLLER, DEVICES, WEBHOOK, Object, Values, metadata

PATHS = ("host", "dev", "sys", "device-plugins", "pod-resources", "state", "run")
"""The host paths of ``agent.PATHS`` that it mounts."""


def daemon_set(values: Values) -> Object:
    """Return the DaemonSet. It runs on every node, and the agent itself finds out whether the node has GPUs."""
    variables = {
        "HOST_ROOT_MOUNT": HOST,
        "ALIQUOT_DRIVER": values.driver,
        "DRIVER_NAMESPACE": values.driver_namespace,
        "ALIQUOT_ALL_DEVICES": values.all_devices,
    }
    container = agent_container(DEVICES, "devices", ("--devices",), variables, values)
    return workload.daemon_set(DEVICES, container, {"volumes": volumes(PATHS)}, mounts(PATHS), values)


def config_map(values: Values) -> Object:
    """Return the ConfigMap that makes the controller serve VMs while it exists. Each key is a variable of the
    controller's pod.
    """
    return made(DEVICES, "controller", {name: value for name, _, value in _settings(values)}, values)


def variables() -> list[Object]:
    """Return the variables that the controller's pod takes from that ConfigMap, if it exists."""
    return [
        {"name": variable, "valueFrom": {"configMapKeyRef": {"name": DEVICES, "key": key, "optional": True}}}
        for key, variable, _ in _settings(Values())
    ]


def _settings(values: Values) -> tuple[tuple[str, str, str], ...]:
    return (
        ("kubevirt-namespace", "KUBEVIRT_NAMESPACE", values.kubevirt_namespace),
        ("webhook-port", "WEBHOOK_PORT", str(values.https_port)),
        ("webhook-cert-dir", "WEBHOOK_CERT_DIR", values.certificates),
    )


def service(values: Values) -> Object:
    """Return the Service by which the API server reaches the webhooks, and clients the capacity."""
    return workload.service(metadata(WEBHOOK, "controller", values.namespace), CONTROLLER, "https", 443)
