"""The devices agent's DaemonSet, and what the controller has for virtual machines: a ConfigMap and a Service."""

from __future__ import annotations

from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.agent import HOST, NODE_AND_POD, mounts, volumes
from aliquot.kubernetes.manifests.config_maps import config_map as made
from aliquot.kubernetes.manifests.values import CONTROLLER, DEVICES, WEBHOOK, Object, Values, metadata

PATHS = ("host", "dev", "sys", "device-plugins", "pod-resources", "state", "run")
"""The host paths that it sees, of those in ``agent.PATHS``."""


def daemon_set(values: Values) -> Object:
    """On every node: which of them have GPUs, it finds out itself."""
    plain = {
        "HOST_ROOT_MOUNT": HOST,
        "ALIQUOT_DRIVER": values.driver,
        "DRIVER_NAMESPACE": values.driver_namespace,
    }
    container = workload.WorkloadContainer(
        name=DEVICES,
        component="devices",
        args=("agent", "--devices", f"--port={values.port}"),
        variables=[
            *workload.pod_field_variables(**NODE_AND_POD),
            *({"name": n, "value": value} for n, value in plain.items()),
        ],
        ports={"http": values.port},
    )
    return workload.daemon_set(DEVICES, container, {"volumes": volumes(PATHS)}, mounts(PATHS), values)


def config_map(values: Values) -> Object:
    """While it is there, the controller serves virtual machines, too; each key is a variable of its pod."""
    return made(DEVICES, "controller", {name: value for name, _, value in _settings(values)}, values)


def variables() -> list[Object]:
    """What the controller's pod takes from that ConfigMap, where there is one."""
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
    """By which the API server finds the webhooks, and clients the capacity."""
    return workload.service(metadata(WEBHOOK, "controller", values.namespace), CONTROLLER, "https", 443)
