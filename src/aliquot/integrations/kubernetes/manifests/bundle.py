"""The manifests as files of objects, in the order in which ``kubectl apply -f FOLDER`` takes them."""

from __future__ import annotations

from aliquot.integrations.kubernetes.manifests import access, admission, agent, controller, maps
from aliquot.integrations.kubernetes.manifests.values import Object, Values, labels

OPTIONAL = "optional"
"""The folder of what needs something that not every cluster has."""


def files(values: Values) -> dict[str, list[Object]]:
    """File name, without ending, to objects."""
    return {
        "00-namespace": [namespace(values)],
        "10-accounts": access.accounts(values),
        "11-rights": access.roles(values),
        "12-admission": admission.policies(values),
        "20-configmaps": maps.maps(values),
        "30-agent": [agent.daemon_set(values)],
        "31-controller": [controller.deployment(values)],
        "40-metrics": controller.services(values),
        f"{OPTIONAL}/servicemonitor": [controller.service_monitor(values)],
    }


def namespace(values: Values) -> Object:
    """The agent is privileged: where Pod Security is enforced, its namespace must allow that."""
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": values.namespace, "labels": labels("namespace") | privileged},
    }
