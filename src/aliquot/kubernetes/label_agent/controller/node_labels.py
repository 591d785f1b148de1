"""Pure rules for the nodes that the agent runs on, their default config, and their reserved GPUs.

The rules are those of the GPU Operator (controllers/state_manager.go), with the catalog for its three chip names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.ids import pci_address
from aliquot.core.model.stored import Stored
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.gpu.reasons import NO_REQUEST, ProgressReason
from aliquot.kubernetes.kinds.harvester import (
    NOT_SERVED,
    NVIDIA,
    PCIDevice,
    PCIDeviceClaim,
    SRIOVGPUDevice,
    passes_through,
)

_CONTAINER = "container"
_VIRTUAL = ("vm-passthrough", "vm-vgpu")
"""Values of the workload label for nodes without containers. The operator treats any other value as ``container``."""

_NFD = re.compile(
    r"feature\.node\.kubernetes\.io/pci-(?:03[0-9a-f]{2}_)?10de(?:_(?P<device>[0-9a-f]{4}))?\b.*\.present"
)
"""node-feature-discovery's label of an NVIDIA function: vendor, class and device depend on its configuration."""


_MIG_COUNT = re.compile(r"nvidia\.com/mig-.+\.count")
"""A label of gpu-feature-discovery that exists only if there are MIG devices."""


class NodeMigCapability(msgspec.Struct, frozen=True):
    """Capability of a node's GPUs to be partitioned."""

    capable: bool | None
    """None if unknown: only an agent on the node can find out."""
    why: str


class WantedNodeLabels(msgspec.Struct, frozen=True):
    """Labels that the controller sets on nodes."""

    labels: bool = True
    """False leaves the labels to the GPU Operator."""
    default_config: str = ""
    """Named config for a capable node without a request; empty for none."""


def node_capability(labels: Mapping[str, str]) -> NodeMigCapability:
    """Derive the capability from labels: those of gpu-feature-discovery or an agent, else the product, else PCI ids."""
    if labels.get(names.GUEST_LABEL):
        return NodeMigCapability(False, "a VM cannot partition its vGPU")
    label_value = labels.get(names.CAPABLE_LABEL)
    if label_value in ("true", "false"):
        return NodeMigCapability(label_value == "true", f"{names.CAPABLE_LABEL}={label_value}")
    product = labels.get(names.PRODUCT_LABEL, "")
    known = _products().get(_model(product)) if product else None
    if known:
        return NodeMigCapability(True, f"according to the catalog, {product} has MIG")
    found = [match["device"] for name, on in labels.items() if on == "true" and (match := _NFD.fullmatch(name))]
    if any(catalog.family_of_device(f"0x{device.upper()}10DE") for device in found if device):
        return NodeMigCapability(True, "its PCI device id is in the catalog")
    if known is not None:
        return NodeMigCapability(False, f"according to the catalog, {product} has no MIG")
    if found or product or labels.get(names.PRESENT_LABEL) == "true":
        return NodeMigCapability(None, "it has an NVIDIA function that the catalog cannot identify by these labels")
    return NodeMigCapability(False, "no label shows an NVIDIA GPU")


def patch(node: Node, wanted: WantedNodeLabels, reserved: Iterable[str] = ()) -> NodePatch:
    """Return the patch for a node; empty if it is as desired. ``reserved`` are PCI addresses.

    An existing deploy label stays, including ``false`` and a pause. Only ``true`` is removed if the agent should not
    run on the node.
    """
    if _was_configured(node):
        wanted = msgspec.structs.replace(wanted, default_config="")
    labels = _labels(node.metadata.labels, wanted) if wanted.labels else {}
    value = ",".join(sorted(reserved)) or None
    before = node.metadata.annotations.get(names.RESERVED_ANNOTATION)
    annotations = {} if value == before else {names.RESERVED_ANNOTATION: value}
    return NodePatch(labels, annotations)


def _was_configured(node: Node) -> bool:
    """Report whether a user removed the request or partitioned the GPUs: a default config would destroy instances."""
    labels = node.metadata.labels
    divided = any(_MIG_COUNT.fullmatch(name) for name in labels) or "-MIG-" in labels.get(names.PRODUCT_LABEL, "")
    return divided or _AgentReport.of(node).withdrawn


class _AgentReport(msgspec.Struct, frozen=True):
    """The agent's status of its node."""

    reason: Stored[ProgressReason | Literal[""]] = ""
    config: str = ""

    @property
    def withdrawn(self) -> bool:
        return self.reason == NO_REQUEST and bool(self.config)

    @classmethod
    def of(cls, node: Node) -> _AgentReport:
        try:
            return msgspec.json.decode(node.metadata.annotations.get(names.STATUS_ANNOTATION, "{}"), type=cls)
        except msgspec.DecodeError:
            return cls()


def _labels(labels: Mapping[str, str], wanted: WantedNodeLabels) -> dict[str, str | None]:
    found = node_capability(labels)
    managed = found.capable is not False and labels.get(names.WORKLOAD_LABEL, _CONTAINER) not in _VIRTUAL
    deploy = labels.get(names.DEPLOY_LABEL, "")
    if not managed:
        return {names.DEPLOY_LABEL: None} if deploy == "true" and _is_certainly_unmanaged(labels) else {}
    changed: dict[str, str | None] = {} if deploy else {names.DEPLOY_LABEL: "true"}
    needs_config = found.capable and deploy != "false" and wanted.default_config
    if needs_config and names.CONFIG_LABEL not in labels:
        changed[names.CONFIG_LABEL] = wanted.default_config
    return changed


def _is_certainly_unmanaged(labels: Mapping[str, str]) -> bool:
    """Report whether the node is known to be unmanaged: a label set by hand on an unknown node must stay."""
    return (
        labels.get(names.WORKLOAD_LABEL) in _VIRTUAL
        or labels.get(names.CAPABLE_LABEL) == "false"
        or bool(labels.get(names.GUEST_LABEL))
    )


def reserved(
    devices: Iterable[SRIOVGPUDevice],
    claims: Iterable[PCIDeviceClaim] = (),
    functions: Mapping[str, PCIDevice] = {},
) -> dict[str, frozenset[str]]:
    """Return the PCI addresses by node of GPUs for VMs: shared, or claimed as a whole.

    After a reboot, a GPU that is claimed as a whole is bound to NVIDIA's driver first. Invalid addresses and claims of
    other devices, such as network cards or disks, are skipped. ``functions`` are by name.
    """
    found: dict[str, set[str]] = {}
    requested = [(d.spec.node_name, d.spec.address) for d in devices if d.spec.enabled]
    requested += [
        (each.spec.node_name, each.spec.address) for each in claims if passes_through(each) and _gpu(each, functions)
    ]
    for node, text in requested:
        if not node:
            continue
        try:
            address = pci_address(text)
        except ValueError:
            continue
        found.setdefault(node, set()).add(address)
    return {node: frozenset(addresses) for node, addresses in found.items()}


def _gpu(claim: PCIDeviceClaim, functions: Mapping[str, PCIDevice]) -> bool:
    """Report whether a claim may be for a GPU: its function is not another device, and the node's agent serves it."""
    function = functions.get(claim.name)
    refused = any(each.reason == NOT_SERVED for each in claim.status.conditions)
    return not refused and (function is None or function.status.vendor_id == NVIDIA)


def families(product: str) -> frozenset[str]:
    """Return the MIG families of the GPUs that a product label may stand for; empty if none can be partitioned."""
    return _products().get(_model(product), frozenset())


@cache
def _products() -> dict[str, frozenset[str]]:
    """Return the MIG families of the catalog's GPUs by product label."""
    found: dict[str, frozenset[str]] = {}
    for device in catalog.devices():
        name = _label(device.name.partition(" (")[0])
        found[name] = found.get(name, frozenset()) | ({device.mig_family} if device.mig_family else frozenset())
    return found


def _label(name: str) -> str:
    """Convert a product's name to a label value. Source: gpu-feature-discovery."""
    return "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", name).split())


def _model(product: str) -> str:
    """Return a product label without the suffixes for sharing and MIG."""
    return product.removesuffix("-SHARED").partition("-MIG-")[0]
