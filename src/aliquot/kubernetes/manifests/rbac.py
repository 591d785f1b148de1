"""Every right that agents, controller and page have in the cluster, each with the reason for it: the one table.

RBAC cannot say "its own node"; what it leaves too wide, ``admission.py`` narrows. What is not here is refused.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests.rbac_dashboard import DASHBOARD_RIGHTS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, Right
from aliquot.kubernetes.manifests.rbac_vms import DEVICES_RIGHTS
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER

EFFECTIVE_MAP = "aliquot-effective"
LEASE = "aliquot-controller"

CONTAINER_RIGHTS = (
    Right(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", READ,
        "the wish (nvidia.com/mig.config), pauses and the cordon are read from its own node",
    ),
    Right(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", ("patch",),
        "labels of what the GPUs are, status annotations, pauses, the cordon",
        narrowed="its own node; labels nvidia.com/* (not mig.config), *.aliquot.dev; annotations aliquot.dev/*; cordon",
    ),
    Right(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("get", "list", "watch"),
        "who holds an instance, whether paused operands are gone",
    ),
    Right(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("delete",),
        "validators run again after a change; holders under the policy force",
        narrowed="pods of its own node",
    ),
    Right(
        AGENT_ACCOUNT, CLUSTER, "", "pods/eviction", ("create",),
        "holders under the policy drain, budgets respected",
        narrowed="not in kube-system; which node a pod is on is not known to an admission policy here",
        evictions=True,
    ),
    Right(
        AGENT_ACCOUNT, OWN, "", "configmaps", READ,
        "named configs, the list of host services, the settings",
    ),
    Right(
        AGENT_ACCOUNT, OWN, "", "configmaps", ("create", "patch"),
        "the configs that were generated for its node, and what its GPUs are, are published",
        narrowed="<node>-mig-config and <node>-gpus of its own node",
    ),
    Right(
        AGENT_ACCOUNT, DEFAULT, "", "events", ("create",),
        "events about its node, which Kubernetes keeps in the namespace default",
        narrowed="events about its own node",
    ),
    Right(
        CONTROLLER, CLUSTER, "", "nodes", READ,
        "which nodes have GPUs that can be partitioned",
    ),
    Right(
        CONTROLLER, CLUSTER, "", "nodes", ("patch",),
        "where no GPU Operator does: the deploy label, the first named config; GPUs that belong to others",
        narrowed="these two labels and one annotation",
    ),
    Right(
        CONTROLLER, CLUSTER, "", "pods", ("list", "watch"),
        "pods that no node takes because of a name that is nearly right (hints.enabled)",
    ),
    Right(
        CONTROLLER, CLUSTER, "", "events", ("create",),
        "their owners are told, where kubectl describe pod shows it",
        narrowed="events of its own, with the reason NearMiss, about pods",
    ),
    Right(
        CONTROLLER, CLUSTER, "nvidia.com", "clusterpolicies", READ,
        "settings of clusters that have the GPU Operator",
    ),
    Right(
        CONTROLLER, CLUSTER, "devices.harvesterhci.io", "sriovgpudevices", READ,
        "GPUs whose virtual functions Harvester manages are out of bounds",
    ),
    Right(
        CONTROLLER, OWN, "", "configmaps", READ,
        "the settings ConfigMap, what was published before, and who is on the GPUs of a node that a hint would name",
    ),
    Right(
        CONTROLLER, OWN, "", "configmaps", ("create",),
        "the effective settings are published for the first time",
        narrowed=f"{EFFECTIVE_MAP} alone",
    ),
    Right(
        CONTROLLER, OWN, "", "configmaps", ("patch",),
        "the effective settings are published",
        named=(EFFECTIVE_MAP,),
    ),
    Right(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("create",),
        "one of several controllers leads",
        narrowed=f"{LEASE} alone",
    ),
    Right(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("get", "patch"),
        "one of several controllers leads",
        named=(LEASE,),
    ),
)  # fmt: skip

RIGHTS = (*CONTAINER_RIGHTS, *DEVICES_RIGHTS, *DASHBOARD_RIGHTS)


def of(who: str, where: str, *, devices: bool, certificate: bool = False, evictions: bool = False) -> tuple[Right, ...]:
    """Return the rows of an account: those that it needs everywhere, those for virtual machines, those for a
    certificate of its own, or those for evictions.
    """
    wanted = (who, where, devices, certificate, evictions)
    return tuple(r for r in RIGHTS if (r.who, r.where, r.devices, r.certificate, r.evictions) == wanted)
