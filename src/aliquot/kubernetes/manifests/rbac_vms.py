"""Rights for VMs: those of the devices agent, and the additional ones of the controller."""

from __future__ import annotations

import msgspec

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import GROUP
from aliquot.kubernetes.kinds.harvester_peripherals import ALL_KINDS, PERIPHERAL_KINDS
from aliquot.kubernetes.kinds.vgpu_pools import GROUP as POOLS
from aliquot.kubernetes.manifests.rbac_rule import CLUSTER, DEFAULT, OWN, READ, RbacRight
from aliquot.kubernetes.manifests.values import CONTROLLER, DEVICES, WEBHOOK

PLURALS = tuple(kind.TYPE.plural for kind in ALL_KINDS)
_PERIPHERALS = tuple(kind.TYPE.plural for kind in PERIPHERAL_KINDS)
CLAIMS, GPUS = "pcideviceclaims", "sriovgpudevices"
USB, USB_CLAIMS = "usbdevices", "usbdeviceclaims"
KUBEVIRT = "kubevirt.io"
HOOKS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
CONTAINER = "nvidia-driver-ctr"
DEFINITIONS = tuple(str(kind.TYPE) for kind in ALL_KINDS)
EXTENSIONS = "apiextensions.k8s.io"
POOLED = ("sriovgpudevices", "vgpudevices", "migconfigurations")
"""What the controller changes for pools."""


def _agent(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str, narrowed: str = "") -> RbacRight:
    every = resource.partition("/")[0] in _PERIPHERALS
    return RbacRight(DEVICES, scope, group, resource, verbs, reason, narrowed=narrowed, devices=True, all_devices=every)


def _controller(
    scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str, narrowed: str = ""
) -> RbacRight:
    return RbacRight(CONTROLLER, scope, group, resource, verbs, reason, narrowed=narrowed, devices=True)


def _certificate(scope: str, group: str, resource: str, verbs: tuple[str, ...], reason: str) -> RbacRight:
    """Return a right that the controller has only if it creates the webhooks' certificate itself."""
    return RbacRight(
        CONTROLLER, scope, group, resource, verbs, reason, resource_names=(WEBHOOK,), devices=True, certificate=True
    )


def _repair(verbs: tuple[str, ...], reason: str, narrowed: str = "") -> RbacRight:
    """Return a right to the definitions of Harvester's kinds, and to no others."""
    return RbacRight(
        CONTROLLER, CLUSTER, EXTENSIONS, "customresourcedefinitions", verbs, reason, DEFINITIONS, narrowed,
        devices=True, repair=True,
    )  # fmt: skip


_OBJECTS = tuple(
    right
    for plural in PLURALS
    for right in (
        _agent(CLUSTER, GROUP, plural, READ, "read the devices and the desired state of its node"),
        _agent(
            CLUSTER, GROUP, plural, ("patch",) if plural == USB_CLAIMS else ("create", "patch", "delete"),
            "publish the devices of its node: labels, owners, finalizers of claims",
            "objects of its own node"
            + ("; it may delete only claims that stand for vGPUs" if plural == CLAIMS else ""),
        ),
        _agent(CLUSTER, GROUP, f"{plural}/status", ("patch",), "report the status", "objects of its own node"),
    )
)  # fmt: skip
_REMOVAL = tuple(
    right
    for plural in PLURALS
    for right in (
        # the controller reads SRIOVGPUDevices in every installation
        *([_controller(CLUSTER, GROUP, plural, READ, "capacity, admission, KubeVirt's settings")] * (plural != GPUS)),
        _controller(CLUSTER, GROUP, plural, ("delete",), "delete the objects of a removed node"),
    )
)  # fmt: skip

DEVICES_RIGHTS = (
    *_OBJECTS,
    _agent(OWN, "", "configmaps", ("get",), "check whether its published document still exists"),
    _agent(
        OWN, "", "configmaps", ("create", "patch"),
        "publish the GPUs of its node, for the dashboard",
        "<node>-vgpus of its own node",
    ),
    _agent(CLUSTER, "", "nodes", READ, "read its own node: the requested driver, the state of the agent"),
    _agent(
        CLUSTER, "", "nodes", ("patch",),
        "request the driver's pod; report the state of the agent",
        f"its own node; label {names.DRIVER_NEEDED_LABEL}, annotation aliquot.dev/devices",
    ),
    _agent(CLUSTER, "", "pods", READ, "find the driver's pod, a running pcidevices, launchers of VMs"),
    _agent(
        CLUSTER, "", "pods/exec", ("get", "create"),
        "run the driver's programs in its pod; read a VM's devices in its launcher",
        "pods nvidia-driver-* in the driver's namespace; in launchers only 'env'; an admission policy cannot see the "
        "node of a pod here",
    ),
    _agent(CLUSTER, KUBEVIRT, "virtualmachines", READ, "find the VM of each device"),
    _agent(
        CLUSTER, KUBEVIRT, "virtualmachines", ("patch",),
        "write the allocated devices to the VM",
        f"the annotation {names.ALLOCATION_ANNOTATION}, and the names of devices",
    ),
    _agent(CLUSTER, KUBEVIRT, "virtualmachineinstances", READ, "find the VMs that run on its node"),
    _agent(
        DEFAULT, "", "events", ("create",),
        "write events about its node and its node's objects, in the namespace default",
        "events about its own node and that node's objects",
    ),
    *_REMOVAL,
    *(
        _controller(
            CLUSTER, GROUP, plural, ("patch",),
            "remove the finalizer of a removed node's claim, because no agent is left to do it",
            "finalizers",
        )
        for plural in (CLAIMS, USB_CLAIMS)
    ),
    _controller(CLUSTER, POOLS, "vgpupools", READ, "read the requested pools of vGPUs"),
    _controller(
        CLUSTER, POOLS, "vgpupools", ("patch",), "keep a pool until its devices are released", "finalizers"
    ),
    _controller(CLUSTER, POOLS, "vgpupools/status", ("patch",), "report the state of pools"),
    *(
        _controller(
            CLUSTER, GROUP, plural, ("patch",),
            "enable the devices of a pool, and disable idle ones",
            "enabled, vGPUTypeName and profileSpec of the spec, the label of the pool, the annotation that skips MIG",
        )
        for plural in POOLED
    ),
    _controller(CLUSTER, KUBEVIRT, "kubevirts", READ, "read the devices that KubeVirt permits for VMs"),
    _controller(
        CLUSTER, KUBEVIRT, "kubevirts", ("patch",),
        "permit the present types of devices",
        "permittedHostDevices, and the annotation that records our entries",
    ),
    _controller(CLUSTER, KUBEVIRT, "virtualmachines", READ, "compute capacity and devices in use"),
    _controller(CLUSTER, KUBEVIRT, "virtualmachineinstances", READ, "compute capacity and devices in use"),
    *(
        _controller(CLUSTER, "resource.k8s.io", plural, ("list", "watch"), reason)
        for plural, reason in (
            ("resourceclaims", "count the devices that VMs have by claims, and keep them from changes"),
            ("resourceclaimtemplates", "count the devices that VMs want by claims"),
        )
    ),
    *(
        _certificate(
            CLUSTER, "admissionregistration.k8s.io", hooks, ("get", "patch"),
            "register the webhooks, with their certificate, once they answer. No admission policy can check these "
            "kinds, so a holder of this token can make these two configurations match any object",
        )
        for hooks in HOOKS
    ),
    _repair(READ, "see when another program overwrites the definitions of Harvester's kinds"),
    _repair(
        ("patch",),
        "add what that program dropped again (devices.repairDefinitions)",
        "versions; none may go, or be served or stored otherwise, and the conversion stays as it is",
    ),
    _certificate(OWN, "", "endpoints", ("get",), "check whether the webhooks' Service has a ready address"),
    msgspec.structs.replace(
        _certificate(OWN, "", "secrets", ("create",), "create the webhooks' certificate"),
        resource_names=(), narrowed=f"{WEBHOOK}, of the type kubernetes.io/tls",
    ),
    _certificate(
        OWN, "", "secrets", ("get", "patch"),
        "share one certificate between all replicas, and renew it in time",
    ),
)  # fmt: skip
