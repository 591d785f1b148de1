"""Rights of an agent that prepares ResourceClaims and publishes ResourceSlices, and of the scheduler extender."""

from __future__ import annotations

from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, READ, RbacRight
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER

GROUP = "resource.k8s.io"

CLAIM_RIGHTS = (
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, GROUP, "resourceclaims", READ,
        "read the devices of a claim, and which devices of its node are allocated. A claim does not name its node, "
        "so all claims are read",
        claims=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, GROUP, "resourceclaims/status", ("patch",),
        "show in a claim which devices are prepared for it, and why one does not work",
        narrowed="status.devices",
        claims=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, GROUP, "resourceclaims/driver", ("associated-node:patch",),
        "the same: Kubernetes 1.36 asks for it, and checks that the claim has devices of the agent's own node",
        claims=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, GROUP, "resourceslices", ("list", "watch"),
        "read what is published for its node, also by another driver of the same name",
        claims=True,
    ),
    RbacRight(
        AGENT_ACCOUNT, CLUSTER, GROUP, "resourceslices", ("create", "patch", "delete"),
        "publish the devices of its node",
        narrowed="slices of its own node",
        claims=True,
    ),
    *(
        RbacRight(CONTROLLER, CLUSTER, GROUP, plural, ("list", "watch"), reason, extender=True)
        for plural, reason in (
            ("resourceslices", "rate the nodes that the scheduler may choose, by what they publish"),
            ("resourceclaims", "know what a pod requests, and which devices are allocated"),
            ("deviceclasses", "know the devices that a class stands for"),
        )
    ),
)  # fmt: skip
