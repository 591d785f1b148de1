"""The web page in a cluster: account, rights, Deployment, Service, and a NetworkPolicy that by default admits no
client.

``kubectl port-forward`` still works, because it connects from inside the pod. Other clients need an HTTPS proxy in
front of it, or the page needs a certificate. The policy must then name the permitted clients.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests import access, workload
from aliquot.kubernetes.manifests import rbac_dashboard as rights_dashboard
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, OWN
from aliquot.kubernetes.manifests.values import DASHBOARD, Object, Values, metadata

PORT = 8470
TLS = "/tls"
"""The mount path of a certificate, if there is one."""


def objects(values: Values) -> list[Object]:
    """Return all objects, in the order in which they are created."""
    return [
        access.account(DASHBOARD, values),
        *access.roles(DASHBOARD, values),
        *user_roles(values),
        deployment(values),
        service(values),
        network_policy(values),
    ]


def user_roles(values: Values) -> list[Object]:
    """Return roles without bindings, for users: to view, and to change."""
    found: list[Object] = []
    for name in (rights_dashboard.VIEW_ROLE, rights_dashboard.CHANGE_ROLE):
        for scope in (CLUSTER, OWN):
            rows = [right for right in rights_dashboard.USER_RIGHTS if (right.account, right.scope) == (name, scope)]
            meta = metadata(name, "dashboard", "" if scope == CLUSTER else values.namespace)
            found += [access.role(meta, scope, rows)] if rows else []
    return found


def deployment(values: Values) -> Object:
    """Return the Deployment. It has one replica, because logins are kept in the memory of one process."""
    container = workload.WorkloadContainer(
        name=DASHBOARD,
        component="dashboard",
        args=(
            "dashboard",
            "--cluster",
            f"--listen=0.0.0.0:{PORT}",
            f"--kubevirt-namespace={values.kubevirt_namespace}",
        ),
        variables=workload.pod_field_variables(POD_NAMESPACE="metadata.namespace"),
        ports={"http": PORT},
        ready_path="/healthz",
        memory=("96Mi", "512Mi"),
    )
    return workload.deployment(container, values, strategy={"type": "Recreate"})


def service(values: Values) -> Object:
    return workload.service(metadata(DASHBOARD, "dashboard", values.namespace), DASHBOARD, "http", PORT)


def network_policy(values: Values) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(DASHBOARD, "dashboard", values.namespace),
        "spec": {"podSelector": {"matchLabels": {"app": DASHBOARD}}, "policyTypes": ["Ingress"], "ingress": []},
    }
