"""The controller's Deployment, and how both are scraped."""

from __future__ import annotations

from aliquot.integrations.kubernetes.manifests import devices
from aliquot.integrations.kubernetes.manifests.agent import probe
from aliquot.integrations.kubernetes.manifests.values import CONTROLLER, Object, Values, labels, metadata

_NOBODY = 65534


def deployment(values: Values) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(CONTROLLER, "controller", values.namespace),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": CONTROLLER}},
            "template": {
                "metadata": {"labels": labels("controller", CONTROLLER)},
                "spec": {
                    "serviceAccountName": CONTROLLER,
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": _NOBODY,
                        "runAsGroup": _NOBODY,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(values)],
                },
            },
        },
    }


def _container(values: Values) -> Object:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    return {
        "name": CONTROLLER,
        "image": values.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["controller", f"--port={values.port}"],
        "env": [
            *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
            *devices.variables(),
        ],
        "ports": [
            {"name": "http", "containerPort": values.port},
            {"name": "https", "containerPort": values.https_port},
        ],
        "livenessProbe": probe("/healthz", 20, 3),
        "readinessProbe": probe("/readyz", 10, 3),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def metrics(app: str, component: str, values: Values) -> Object:
    """A name without an address for a kind of pod: every pod is scraped by itself."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(app, component, values.namespace),
        "spec": {
            "clusterIP": "None",
            "selector": {"app": app},
            "ports": [{"name": "http", "port": values.port, "targetPort": "http"}],
        },
    }


def service_monitor(values: Values) -> Object:
    """For clusters with the Prometheus Operator, whose kind this is."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata("aliquot", "metrics", values.namespace),
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "aliquot"}},
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
        },
    }
