"""Manifests as files of objects, in the order in which ``kubectl apply -f FOLDER`` applies them.

There are two folders, for containers and for VMs. Each is complete, and objects in both are the same.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests import (
    access,
    admission,
    agent,
    claim_agent,
    dashboard,
    extender,
    pcidevices_addon,
    vgpu_agent,
    webhooks,
    workload,
)
from aliquot.kubernetes.manifests import admission_vms as admission_devices
from aliquot.kubernetes.manifests import config_maps as maps
from aliquot.kubernetes.manifests import vm_agent as devices
from aliquot.kubernetes.manifests.values import (
    AGENT,
    AGENT_ACCOUNT,
    CLAIMS,
    CONTROLLER,
    DEVICES,
    VGPUS,
    VGPUS_DAEMON_SET,
    Object,
    Values,
    labels,
    metadata,
)

OPTIONAL = "optional"
"""The folder of objects that need a component which not every cluster has, and of rights that not every cluster should
grant.
"""
BOTH, CONTAINERS, MACHINES, CERTIFICATE = "both", "containers", "machines", "certificate"
REPAIR = "repair"
"""Installations that a group of objects belongs to. CERTIFICATE are those for VMs whose controller creates the
webhooks' certificate itself, and registers the webhooks. REPAIR are those for VMs whose controller repairs definitions.
"""
MONITORING = "monitoring"
"""The namespace in which kube-prometheus and most of its packages put Prometheus."""
METRICS_FROM: list[Object] = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}]
_ACCOUNTS = ((CONTAINERS, AGENT_ACCOUNT), (BOTH, CONTROLLER), (MACHINES, DEVICES))
Files = dict[str, list[Object]]


def files(values: Values) -> Files:
    """Return the files for containers: file name without suffix, to objects."""
    return _files_of(values, CONTAINERS, BOTH)


def vm_files(values: Values) -> Files:
    """Return the files for VMs."""
    return _files_of(values, MACHINES, CERTIFICATE, REPAIR, BOTH)


def _files_of(values: Values, *installations: str) -> Files:
    found = {
        name: [item for installation, items in groups for item in items if installation in installations]
        for name, groups in grouped(values).items()
    }
    return {name: items for name, items in found.items() if items}


def grouped(values: Values) -> dict[str, list[tuple[str, list[Object]]]]:
    """Return every file, with its objects by the installations that they belong to."""
    return {
        "00-namespace": [(BOTH, [namespace(values)])],
        "10-accounts": [(installation, [access.account(name, values)]) for installation, name in _ACCOUNTS],
        "11-rights": [
            (CONTAINERS, access.roles(AGENT_ACCOUNT, values)),
            (BOTH, access.roles(CONTROLLER, values)),
            (MACHINES, access.roles(CONTROLLER, values, devices=True)),
            (CERTIFICATE, access.roles(CONTROLLER, values, devices=True, certificate=True)),
            (REPAIR, access.roles(CONTROLLER, values, devices=True, repair=True)),
            (MACHINES, access.roles(DEVICES, values, devices=True)),
        ],
        "12-admission": [
            (CONTAINERS, admission.agent(values)),
            (BOTH, admission.controller(values)),
            (MACHINES, [*admission_devices.controller(values), *admission_devices.agent(values)]),
        ],
        "20-configmaps": [
            (CONTAINERS, maps.agent(values)),
            (BOTH, maps.settings_maps(values)),
            (MACHINES, [devices.config_map(values)]),
        ],
        "30-agent": [(CONTAINERS, [agent.daemon_set(values)])],
        "31-controller": [(BOTH, [controller_deployment(values)])],
        "32-devices": [(MACHINES, [devices.daemon_set(values)])],
        "33-webhooks": [(MACHINES, [devices.service(values)]), (CERTIFICATE, webhooks.empty_configurations())],
        "40-metrics": [
            (CONTAINERS, [metrics_service(AGENT, "agent", values)]),
            (BOTH, [metrics_service(CONTROLLER, "controller", values)]),
            (MACHINES, [metrics_service(DEVICES, "devices", values)]),
        ],
        "41-network": [
            (CONTAINERS, [network_policy(values.daemon_set, "agent", values)]),
            (BOTH, [network_policy(CONTROLLER, "controller", values, https=True)]),
            (MACHINES, [network_policy(DEVICES, "devices", values)]),
        ],
        **_optional(values),
    }


def _optional(values: Values) -> dict[str, list[tuple[str, list[Object]]]]:
    """Return the files of the folder OPTIONAL."""
    claims = [
        *access.roles(AGENT_ACCOUNT, values, claims=True),
        *admission.claims(values),
        claim_agent.daemon_set(values),
        metrics_service(CLAIMS, "claims", values),
    ]
    rating = [
        *access.roles(CONTROLLER, values, extender=True),
        extender.config_map(values),
        extender.service(values),
    ]
    return {
        f"{OPTIONAL}/all-devices": [(MACHINES, access.roles(DEVICES, values, devices=True, all_devices=True))],
        f"{OPTIONAL}/beside-pcidevices": [(MACHINES, [pcidevices_addon.chart_config()])],
        f"{OPTIONAL}/dashboard": [(BOTH, dashboard.objects(values))],
        f"{OPTIONAL}/claims": [(CONTAINERS, claims)],
        f"{OPTIONAL}/claims-network": [(CONTAINERS, [network_policy(CLAIMS, "claims", values)])],
        f"{OPTIONAL}/vgpus": [(CONTAINERS, [vgpu_agent.daemon_set(values), metrics_service(VGPUS, "vgpus", values)])],
        f"{OPTIONAL}/vgpus-network": [(CONTAINERS, [network_policy(VGPUS_DAEMON_SET, "vgpus", values)])],
        f"{OPTIONAL}/extender": [(BOTH, rating)],
        f"{OPTIONAL}/extender-network": [(BOTH, [extender.network_policy(values)])],
        f"{OPTIONAL}/evictions": [(CONTAINERS, access.roles(AGENT_ACCOUNT, values, evictions=True))],
        f"{OPTIONAL}/servicemonitor": [(BOTH, [service_monitor(values)])],
    }


def namespace(values: Values) -> Object:
    """Return the namespace. The agent is privileged: if Pod Security is enforced, its namespace must allow that."""
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": values.namespace, "labels": labels("namespace") | privileged},
    }


def network_policy(name: str, component: str, values: Values, *, https: bool = False) -> Object:
    """Build the policy of one component: metrics for METRICS_FROM, and with ``https`` webhooks and capacity for all.

    The API server calls webhooks from an address that no selector matches and that we cannot guess. A pod that forges a
    review gets nothing admitted, but can hold a free device for some seconds: docs/harvester.md.

    No policy filters traffic from a pod's own node, so the kubelet's probes always arrive. No policy applies to a pod
    with ``hostNetwork``, so none of ours has it. Outgoing traffic stays open. All of it goes to the API server, whose
    address differs from cluster to cluster. A policy can name an address outside the cluster's pods only by its number.
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


def controller_deployment(values: Values) -> Object:
    container = workload.WorkloadContainer(
        name=CONTROLLER,
        component="controller",
        args=("controller", f"--port={values.port}"),
        variables=[
            *workload.pod_field_variables(POD_NAME="metadata.name", POD_NAMESPACE="metadata.namespace"),
            *devices.variables(),
            *extender.variables(),
        ],
        ports={"http": values.port, "https": values.https_port, extender.PORT: values.extender_port},
    )
    return workload.deployment(container, values)


def metrics_service(app: str, component: str, values: Values) -> Object:
    """Return a headless Service for a kind of pod, because every pod is scraped separately."""
    return workload.service(metadata(app, component, values.namespace), app, "http", values.port, clusterIP="None")


def service_monitor(values: Values) -> Object:
    """Return a ServiceMonitor, for clusters with the Prometheus Operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata("aliquot", "metrics", values.namespace),
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "aliquot"}},
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
        },
    }
