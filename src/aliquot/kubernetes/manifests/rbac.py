"""The one table of rights: every right of agents, controller and page in the cluster, with its reason.

RBAC cannot express "its own node"; ``admission.py`` narrows what RBAC leaves too wide. Rights outside the table are
refused.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests.rbac_claims import CLAIM_RIGHTS
from aliquot.kubernetes.manifests.rbac_dashboard import DASHBOARD_RIGHTS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.rbac_vms import DEVICES_RIGHTS
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER

EFFECTIVE_MAP = "aliquot-effective"
LEASE = "aliquot-controller"

CONTAINER_RIGHTS = (
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", READ,
        "read the desired state (nvidia.com/mig.config, vgpu.config), pauses and the cordon of its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "nodes", ("patch",),
        "write labels that describe the GPUs, status annotations, pauses, the cordon",
        narrowed="its own node; labels nvidia.com/* (not *.config), *.aliquot.dev; annotations aliquot.dev/*; cordon",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("get", "list", "watch"),
        "find the holder of an instance, and see whether paused operands are gone",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods", ("delete",),
        "restart validators after a change; remove holders under the policy force",
        narrowed="pods of its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, "", "pods/eviction", ("create",),
        "evict holders under the policy drain, within their disruption budgets",
        narrowed="namespaces except kube-system; an admission policy cannot see the node of a pod here",
        evictions=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, OWN, "", "configmaps", READ,
        "read named configs, the list of host services, the settings",
    ),
    RbacRight(
        AGENT_ACCOUNT, OWN, "", "configmaps", ("create", "patch"),
        "publish the generated configs and the GPUs of its node",
        narrowed="<node>-mig-config, <node>-vgpu-config and <node>-gpus of its own node",
    ),
    RbacRight(
        AGENT_ACCOUNT, DEFAULT, "", "events", ("create",),
        "write events about its node, which Kubernetes keeps in the namespace default",
        narrowed="events about its own node",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "nodes", READ,
        "find nodes whose GPUs can be partitioned",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "nodes", ("patch",),
        "write the deploy label and the first named config, without a GPU Operator; mark GPUs of other managers",
        narrowed="these two labels and one annotation",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "pods", ("list", "watch"),
        "find unscheduled pods that request a nearly correct name (hints.enabled)",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "", "events", ("create",),
        "report that to their owners, where kubectl describe pod shows it",
        narrowed="events of its own: NearMiss about pods, and those about the definitions that it repairs",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "nvidia.com", "clusterpolicies", READ,
        "read settings of clusters that have the GPU Operator",
    ),
    RbacRight(
        CONTROLLER, CLUSTER, "devices.harvesterhci.io", "sriovgpudevices", READ,
        "exclude GPUs whose virtual functions Harvester manages",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", READ,
        "read the settings, what was published before, and the holders on a node that a hint would name",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", ("create",),
        "publish the effective settings for the first time",
        narrowed=f"{EFFECTIVE_MAP}",
    ),
    RbacRight(
        CONTROLLER, OWN, "", "configmaps", ("patch",),
        "publish the effective settings",
        resource_names=(EFFECTIVE_MAP,),
    ),
    RbacRight(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("create",),
        "elect a leader among several controllers",
        narrowed=f"{LEASE}",
    ),
    RbacRight(
        CONTROLLER, OWN, "coordination.k8s.io", "leases", ("get", "patch"),
        "elect a leader among several controllers",
        resource_names=(LEASE,),
    ),
)  # fmt: skip

RIGHTS = (*CONTAINER_RIGHTS, *CLAIM_RIGHTS, *DEVICES_RIGHTS, *DASHBOARD_RIGHTS)


def rights_of(
    account_name: str,
    scope: str,
    *,
    devices: bool,
    certificate: bool = False,
    evictions: bool = False,
    claims: bool = False,
    extender: bool = False,
    repair: bool = False,
    all_devices: bool = False,
) -> tuple[RbacRight, ...]:
    """Return the rows of an account: those that it needs everywhere, those for VMs, those for a certificate that the
    controller creates, those for evictions, those for ResourceClaims, those of the scheduler extender, those for the
    repair of definitions, or those for the devices of all vendors.
    """
    wanted = (account_name, scope, devices, certificate, evictions, claims, extender, repair, all_devices)
    return tuple(right for right in RIGHTS if _installation(right) == wanted)


def _installation(right: RbacRight) -> tuple[object, ...]:
    optional = (right.certificate, right.evictions, right.claims, right.extender, right.repair, right.all_devices)
    return (right.account, right.scope, right.devices, *optional)
