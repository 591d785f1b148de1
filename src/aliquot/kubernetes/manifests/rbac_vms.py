"""The rights for virtual machines: those of the devices agent, and what the controller needs beside its own."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import GROUP, KINDS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.values import CONTROLLER, DEVICES, WEBHOOK

PLURALS = tuple(kind.TYPE.plural for kind in KINDS)
CLAIMS, GPUS = "pcideviceclaims", "sriovgpudevices"
KUBEVIRT = "kubevirt.io"
HOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
CONTAINER = "nvidia-driver-ctr"
USB = ("usbdevices", "usbdeviceclaims")


def _agent(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str, narrowed: str = "") -> RbacRight:
    return RbacRight(DEVICES, scope, group, resource, verbs, reason, narrowed=narrowed, devices=True)


def _controller(
    scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str, narrowed: str = ""
) -> RbacRight:
    return RbacRight(CONTROLLER, scope, group, resource, verbs, reason, narrowed=narrowed, devices=True)


def _certificate(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str) -> RbacRight:
    """Not given where somebody else makes the certificate."""
    return RbacRight(
        CONTROLLER, scope, group, resource, verbs, reason, resource_names=(WEBHOOK,), devices=True, certificate=True
    )


_OBJECTS = tuple(
    right
    for plural in PLURALS
    for right in (
        _agent(CLUSTER, GROUP, plural, READ, "what its node has, and what is wished of it"),
        _agent(
            CLUSTER, GROUP, plural, ("create", "patch", "delete"),
            "what its node has is published: labels, owners, finalizers of claims",
            "objects of its own node"
            + ("; of claims, only vGPUs' own are deleted" if plural == CLAIMS else ""),
        ),
        _agent(CLUSTER, GROUP, f"{plural}/status", ("patch",), "how the wish stands", "objects of its own node"),
    )
)  # fmt: skip
_REMOVAL = tuple(
    right
    for plural in PLURALS
    for right in (
        # SRIOVGPUDevices it reads everywhere
        *([_controller(CLUSTER, GROUP, plural, READ, "capacity, admission, KubeVirt's settings")] * (plural != GPUS)),
        _controller(CLUSTER, GROUP, plural, ("delete",), "objects of a node that was removed go with it"),
    )
)  # fmt: skip

DEVICES_RIGHTS = (
    *_OBJECTS,
    _agent(OWN, "", "configmaps", ("get",), "whether what it published is still there"),
    _agent(
        OWN, "", "configmaps", ("create", "patch"),
        "what the GPUs of its node are is published, for the dashboard",
        "<node>-vgpus of its own node",
    ),
    _agent(CLUSTER, "", "nodes", READ, "its own node: the driver that it asks for, how the agent stands"),
    _agent(
        CLUSTER, "", "nodes", ("patch",),
        "the driver's pod is asked for; how the agent stands is told",
        f"its own node; label {names.DRIVER_NEEDED_LABEL}, annotation aliquot.dev/devices",
    ),
    _agent(CLUSTER, "", "pods", READ, "the driver's pod, a pcidevices that still works, machines' launchers"),
    _agent(
        CLUSTER, "", "pods/exec", ("get", "create"),
        "the driver's programs lie in its pod; what a machine was given is read in its launcher",
        "pods nvidia-driver-* in the driver's namespace; in launchers 'env' alone; which node a pod is on is not known "
        "to an admission policy here",
    ),
    _agent(CLUSTER, KUBEVIRT, "virtualmachines", READ, "whose device is whose"),
    _agent(
        CLUSTER, KUBEVIRT, "virtualmachines", ("patch",),
        "which devices a machine was given is written to it",
        f"the annotation {names.ALLOCATION_ANNOTATION}, and the names of devices; not what they are",
    ),
    _agent(CLUSTER, KUBEVIRT, "virtualmachineinstances", READ, "which machines run on its node"),
    _agent(
        DEFAULT, "", "events", ("create",),
        "events about its node and its node's objects, which are kept in the namespace default",
        "events about its own node and that node's objects",
    ),
    *_REMOVAL,
    _controller(
        CLUSTER, GROUP, CLAIMS, ("patch",),
        "a claim of a removed node keeps no finalizer that nobody is left to take off",
        "finalizers alone",
    ),
    *(
        _controller(CLUSTER, GROUP, plural, READ, "USB devices that are in use keep their controllers")
        for plural in USB
    ),
    _controller(CLUSTER, KUBEVIRT, "kubevirts", READ, "which devices KubeVirt lets machines ask for"),
    _controller(
        CLUSTER, KUBEVIRT, "kubevirts", ("patch",),
        "it is told of the types that there are",
        "permittedHostDevices, and the annotation that remembers which entries are ours",
    ),
    _controller(CLUSTER, KUBEVIRT, "virtualmachines", READ, "capacity, devices in use"),
    _controller(CLUSTER, KUBEVIRT, "virtualmachineinstances", READ, "capacity, devices in use"),
    *(
        _certificate(
            CLUSTER, "admissionregistration.k8s.io", hooks, ("get", "patch"),
            "the controller registers the webhooks, with their certificate, once they answer; no admission policy "
            "can look at these kinds, so that who has this token can make these two configurations ask about anything",
        )
        for hooks in HOOKS
    ),
    _certificate(OWN, "", "endpoints", ("get",), "whether the webhooks' Service has an address that answers"),
    msgspec.structs.replace(
        _certificate(OWN, "", "secrets", ("create",), "the webhooks' certificate is made for the first time"),
        resource_names=(), narrowed=f"{WEBHOOK} alone, of the type kubernetes.io/tls",
    ),
    _certificate(
        OWN, "", "secrets", ("get", "patch"),
        "every replica answers with the same certificate; it is renewed in time",
    ),
)  # fmt: skip
