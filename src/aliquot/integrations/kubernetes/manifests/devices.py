"""The devices agent's DaemonSet, and what the controller has for virtual machines: a ConfigMap and a Service."""

from __future__ import annotations

from aliquot.integrations.kubernetes.manifests.agent import HOST, mounts, probe, volumes
from aliquot.integrations.kubernetes.manifests.maps import config_map as made
from aliquot.integrations.kubernetes.manifests.values import (
    CONTROLLER,
    DEVICES,
    WEBHOOK,
    Object,
    Values,
    labels,
    metadata,
)

PATHS = ("host", "dev", "sys", "device-plugins", "pod-resources", "state", "run")
"""The host paths that it sees, of those in ``agent.PATHS``."""


def daemon_set(values: Values) -> Object:
    """On every node: which of them have GPUs, it finds out itself."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(DEVICES, "devices", values.namespace),
        "spec": {
            "selector": {"matchLabels": {"app": DEVICES}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": labels("devices", DEVICES)}, "spec": _pod(values)},
        },
    }


def _pod(values: Values) -> Object:
    return {
        "serviceAccountName": DEVICES,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "hostPID": True,
        "terminationGracePeriodSeconds": 60,
        "containers": [_container(values)],
        "volumes": volumes(PATHS),
    }


def _container(values: Values) -> Object:
    fields = {"NODE_NAME": "spec.nodeName", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    plain = {
        "HOST_ROOT_MOUNT": HOST,
        "ALIQUOT_DRIVER": values.driver,
        "DRIVER_NAMESPACE": values.driver_namespace,
    }
    return {
        "name": DEVICES,
        "image": values.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["agent", "--devices", f"--port={values.port}"],
        "env": [
            *({"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in fields.items()),
            *({"name": name, "value": value} for name, value in plain.items()),
        ],
        "ports": [{"name": "http", "containerPort": values.port}],
        "startupProbe": probe("/healthz", 5, 60),
        "livenessProbe": probe("/healthz", 20, 3),
        "readinessProbe": probe("/readyz", 10, 3),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "volumeMounts": mounts(PATHS),
    }


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
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(WEBHOOK, "controller", values.namespace),
        "spec": {
            "selector": {"app": CONTROLLER},
            "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
        },
    }
