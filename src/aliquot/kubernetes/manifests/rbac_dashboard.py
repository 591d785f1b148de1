"""Rights of the web page in a cluster: it reads, and checks the identity and rights of its users. It changes nothing
itself: users change objects through it, with their own tokens and rights.
"""

from __future__ import annotations

from aliquot.kubernetes.kinds.harvester import GROUP
from aliquot.kubernetes.manifests.rbac_claims import GROUP as DRA
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.rbac_vms import KUBEVIRT, PLURALS
from aliquot.kubernetes.manifests.values import DASHBOARD

VIEW_ROLE, CHANGE_ROLE = f"{DASHBOARD}-look", f"{DASHBOARD}-change"
"""Roles for users. Bind them as needed."""
_WATCHED = ("list", "watch")


def _page(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str) -> RbacRight:
    return RbacRight(DASHBOARD, scope, group, resource, verbs, reason)


DASHBOARD_RIGHTS = (
    _page(CLUSTER, "", "nodes", READ, "show nodes, their readiness and their desired state"),
    _page(
        CLUSTER, "authentication.k8s.io", "tokenreviews", ("create",),
        "find the user of a login token",
    ),
    _page(
        CLUSTER, "authorization.k8s.io", "subjectaccessreviews", ("create",),
        "check whether users may view the page, and which buttons they may use",
    ),
    _page(OWN, "", "configmaps", READ, "show what agents publish about their nodes; named configs"),
    _page(OWN, "", "pods", _WATCHED, "mark a node as outdated while its agent is unavailable"),
    _page(DEFAULT, "", "events", ("list",), "show past changes"),
    *(
        _page(CLUSTER, GROUP, plural, _WATCHED, "show vGPUs, virtual functions, MIG layouts, holders")
        for plural in PLURALS
    ),
    _page(CLUSTER, DRA, "resourceclaims", _WATCHED, "show which claims have which GPUs, for which pods"),
    _page(CLUSTER, DRA, "resourceslices", _WATCHED, "show what is left for other claims, and why not more"),
    _page(CLUSTER, KUBEVIRT, "virtualmachines", READ, "show VMs and their devices"),
    _page(CLUSTER, KUBEVIRT, "virtualmachineinstances", _WATCHED, "show which VMs run, and where"),
    _page(CLUSTER, KUBEVIRT, "kubevirts", _WATCHED, "show the devices that KubeVirt permits for VMs"),
)  # fmt: skip

USER_RIGHTS = (
    RbacRight(VIEW_ROLE, CLUSTER, "", "nodes", ("get", "list"), "view the page, which needs the right to read nodes"),
    RbacRight(
        CHANGE_ROLE, CLUSTER, "", "nodes", ("get", "list", "patch"), "assign a named config, a label of the node"
    ),
    *(
        RbacRight(
            CHANGE_ROLE, CLUSTER, GROUP, plural, ("patch",), "change the objects of VFs, vGPUs and MIG layouts"
        )
        for plural in ("sriovgpudevices", "vgpudevices", "migconfigurations")
    ),
    RbacRight(CHANGE_ROLE, CLUSTER, KUBEVIRT, "virtualmachines", ("get", "patch"), "change the devices of VMs"),
    RbacRight(
        CHANGE_ROLE, OWN, "", "configmaps", ("get", "create", "patch"),
        "partition one GPU by a config of its node, NODE-own-config. RBAC cannot express that name, so the right "
        "covers every ConfigMap of this namespace, including the agents' settings",
    ),
)  # fmt: skip
