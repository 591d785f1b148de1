"""The objects that turn on the controller's scheduler extender: a ConfigMap and a Service."""

from __future__ import annotations

from aliquot.kubernetes.manifests import workload
from aliquot.kubernetes.manifests.config_maps import config_map as made
from aliquot.kubernetes.manifests.values import CONTROLLER, EXTENDER, Object, Values, labels, metadata

PORT = "extender"
"""The name of the port."""


def config_map(values: Values) -> Object:
    """Return the ConfigMap that makes the controllers serve the extender from their next start on."""
    return made(EXTENDER, "controller", {name: value for name, _, value in _settings(values)}, values)


def variables() -> list[Object]:
    """Return the variables that the controller's pod takes from that ConfigMap, if it exists."""
    return [
        {"name": variable, "valueFrom": {"configMapKeyRef": {"name": EXTENDER, "key": key, "optional": True}}}
        for key, variable, _ in _settings(Values())
    ]


def _settings(values: Values) -> tuple[tuple[str, str, str], ...]:
    return (
        ("port", "DRA_EXTENDER_PORT", str(values.extender_port)),
        ("score", "DRA_EXTENDER_SCORE", values.extender_score),
        ("cert-dir", "DRA_EXTENDER_CERT_DIR", values.extender_certificates),
    )


def service(values: Values) -> Object:
    """Return the Service by which the scheduler reaches the extender of any controller."""
    return workload.service(metadata(EXTENDER, "controller", values.namespace), CONTROLLER, PORT, 443)


def network_policy(values: Values) -> Object:
    """Return the policy that opens the port. The scheduler runs on the host's network, which no selector matches."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(EXTENDER, "controller", values.namespace),
        "spec": {
            "podSelector": {"matchLabels": labels("controller")},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": PORT}]}],
        },
    }
