"""NetworkPolicies: who reaches the pages of the agents and of the controller.

They do not filter a pod's own node, so that kubelet's probes always arrive, and they would not hold for a pod with
``hostNetwork``: none of ours has it. Outgoing traffic stays open. All of it goes to the API server, whose address
differs from cluster to cluster, and a policy can name an address outside the cluster's pods only by its number.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests.values import Object, Values, labels, metadata

MONITORING = "monitoring"
"""The namespace in which kube-prometheus and most of its packages put Prometheus."""
METRICS_FROM: list[Object] = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}]


def policy(name: str, component: str, values: Values, *, https: bool = False) -> Object:
    """Build the policy of one component: metrics for METRICS_FROM, and with ``https`` webhooks and capacity for all.

    The API server calls webhooks from an address that no selector matches and that we cannot guess. A pod that forges a
    review gets nothing admitted, but can hold a free device for some seconds: docs/harvester.md.
    """
    ingress: list[Object] = [{"ports": [{"port": "http"}], "from": METRICS_FROM}]
    if https:
        ingress.append({"ports": [{"port": "https"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, component, values.namespace),
        "spec": {
            "podSelector": {"matchLabels": labels(component)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }
