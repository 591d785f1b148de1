"""Every right that agents, controller and page have in the cluster, each with the reason for it: the one table.

RBAC cannot say "its own node"; what it leaves too wide, ``admission.py`` narrows. What is not here is refused.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests.rbac_dashboard import DASHBOARD_RIGHTS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.rbac_vms import DEVICES_RIGHTS
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER

EFFECTIVE_MAP = "aliquot-effective"
LEASE = "aliquot-controller"

CONTAINER_RIGHTS = (
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", READ,
        "the wish (nvidia.com/mig.config), pauses and the cordon are read from its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", ("patch",),
        "labels of what the GPUs are, status annotations, pauses, the cordon",
        narrowed="its own node; labels nvidia.com/* (not mig.config), *.aliquot.dev; annotations aliquot.dev/*; cordon",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("get", "list", "watch"),
        "who holds an instance, whether paused operands are gone",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("delete",),
        "validators run again after a change; holders under the policy force",
        narrowed="pods of its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods/eviction", ("create",),
        "holders under the policy drain, budgets respected",
        narrowed="not in kube-system; which node a pod is on is not known to an admission policy here",
        evictions=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, OWN, "", "configmaps", READ,
        "named configs, the list of host services, the settings",
    ),
    RbacRight(
        AGENT_ACCOUNT, OWN, "", "configmaps", ("create", "patch"),
        "the configs that were generated for its node, and what its GPUs are, are published",
        narrowed="<node>-mig-config and <node>-gpus of its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, DEFAULT, "", "events", ("create",),
        "events about its node, which Kubernetes keeps in the namespace default",
        narrowed="events about its own node",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "nodes", READ,
        "which nodes have GPUs that can be partitioned",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "nodes", ("patch",),
        "where no GPU Operator does: the deploy label, the first named config; GPUs that belong to others",
        narrowed="these two labels and one annotation",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "pods", ("list", "watch"),
        "pods that no node takes because of a name that is nearly right (hints.enabled)",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "events", ("create",),
        "their owners are told, where kubectl describe pod shows it",
        narrowed="events of its own, with the reason NearMiss, about pods",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "nvidia.com", "clusterpolicies", READ,
        "settings of clusters that have the GPU Operator",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "devices.harvesterhci.io", "sriovgpudevices", READ,
        "GPUs whose virtual functions Harvester manages are out of bounds",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", READ,
        "the settings ConfigMap, what was published before, and who is on the GPUs of a node that a hint would name",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", ("create",),
        "the effective settings are published for the first time",
        narrowed=f"{EFFECTIVE_MAP} alone",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", ("patch",),
        "the effective settings are published",
        resource_names=(EFFECTIVE_MAP,),
    ),
    RbacRight(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("create",),
        "one of several controllers leads",
        narrowed=f"{LEASE} alone",
    ),
    RbacRight(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("get", "patch"),
        "one of several controllers leads",
        resource_names=(LEASE,),
    ),
)  # fmt: skip

RIGHTS = (*CONTAINER_RIGHTS, *DEVICES_RIGHTS, *DASHBOARD_RIGHTS)


def rights_of(
    account_name: str, scope: str, *, devices: bool, certificate: bool = False, evictions: bool = False
) -> tuple[RbacRight, ...]:
    """Return the rows of an account: those that it needs everywhere, those for virtual machines, those for a
    certificate of its own, or those for evictions.
    """
    wanted = (account_name, scope, devices, certificate, evictions)
    return tuple(r for r in RIGHTS if (r.account, r.scope, r.devices, r.certificate, r.evictions) == wanted)
