"""The rights of the web page in a cluster: it reads, and asks who somebody is and what they may. It changes nothing by
itself: people change things by it, with their own tokens and rights.
"""

from __future__ import annotations

from aliquot.kubernetes.kinds.harvester import GROUP
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.rbac_vms import KUBEVIRT, PLURALS, USB
from aliquot.kubernetes.manifests.values import DASHBOARD

VIEW_ROLE, CHANGE_ROLE = f"{DASHBOARD}-look", f"{DASHBOARD}-change"
"""Roles for people: bind them as you like."""
_WATCHED = ("list", "watch")


def _page(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str) -> RbacRight:
    return RbacRight(DASHBOARD, scope, group, resource, verbs, reason)


DASHBOARD_RIGHTS = (
    _page(CLUSTER, "", "nodes", READ, "which nodes there are, whether they are ready, what was asked of them"),
    _page(
        CLUSTER, "authentication.k8s.io", "tokenreviews", ("create",),
        "whose token somebody logs in with",
    ),
    _page(
        CLUSTER, "authorization.k8s.io", "subjectaccessreviews", ("create",),
        "whether they may look, and which buttons are of use to them",
    ),
    _page(OWN, "", "configmaps", READ, "what agents publish of their nodes; named configs"),
    _page(OWN, "", "pods", _WATCHED, "whether a node's agent is away, so that what is shown of it may be old"),
    _page(DEFAULT, "", "events", ("list",), "past changes"),
    *(
        _page(CLUSTER, GROUP, plural, _WATCHED, "virtual functions, vGPUs, MIG layouts and who has them")
        for plural in (*PLURALS, *USB)
    ),
    _page(CLUSTER, KUBEVIRT, "virtualmachines", READ, "which machines there are, and their devices"),
    _page(CLUSTER, KUBEVIRT, "virtualmachineinstances", _WATCHED, "which of them run, and where"),
    _page(CLUSTER, KUBEVIRT, "kubevirts", _WATCHED, "which devices KubeVirt lets machines ask for"),
)  # fmt: skip

USER_RIGHTS = (
    RbacRight(VIEW_ROLE, CLUSTER, "", "nodes", ("get", "list"), "who may read nodes may look at the page"),
    RbacRight(
        CHANGE_ROLE, CLUSTER, "", "nodes", ("get", "list", "patch"), "named configs are given by a label of the node"
    ),
    *(
        RbacRight(
            CHANGE_ROLE, CLUSTER, GROUP, plural, ("patch",), "virtual functions, vGPUs and MIG layouts by their objects"
        )
        for plural in ("sriovgpudevices", "vgpudevices", "migconfigurations")
    ),
    RbacRight(CHANGE_ROLE, CLUSTER, KUBEVIRT, "virtualmachines", ("get", "patch"), "devices of machines"),
    RbacRight(
        CHANGE_ROLE, OWN, "", "configmaps", ("get", "create", "patch"),
        "one GPU is cut by a config of its node's own, NODE-own-config; RBAC cannot say so, and gives every ConfigMap "
        "of this namespace, the agents' settings among them",
    ),
)  # fmt: skip
