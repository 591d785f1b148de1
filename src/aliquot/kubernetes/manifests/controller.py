"""The controller's Deployment, and how both are scraped."""

from __future__ import annotations

from aliquot.kubernetes.manifests import vm_agent as devices
from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.values import CONTROLLER, Object, Values, metadata


def deployment(values: Values) -> Object:
    container = workload.WorkloadContainer(
        name=CONTROLLER,
        component="controller",
        args=("controller", f"--port={values.port}"),
        variables=[
            *workload.pod_field_variables(POD_NAME="metadata.name", POD_NAMESPACE="metadata.namespace"),
            *devices.variables(),
        ],
        ports={"http": values.port, "https": values.https_port},
    )
    return workload.deployment(container, values)


def metrics(app: str, component: str, values: Values) -> Object:
    """A name without an address for a kind of pod: every pod is scraped by itself."""
    return workload.service(metadata(app, component, values.namespace), app, "http", values.port, clusterIP="None")


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
