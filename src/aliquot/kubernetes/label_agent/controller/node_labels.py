"""Which nodes the agent should run on, what their first wish is, and which of their GPUs are out of bounds: pure.

The rule is the GPU Operator's (controllers/state_manager.go), with our catalog in the place of its three chip names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.ids import pci_address
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
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
"""Values of the workload label that keep containers off. The operator takes any other value for ``container``."""

_NFD = re.compile(
    r"feature\.node\.kubernetes\.io/pci-(?:03[0-9a-f]{2}_)?10de(?:_(?P<device>[0-9a-f]{4}))?\b.*\.present"
)
"""node-feature-discovery's label of an NVIDIA function: vendor, class and device as its configuration says."""


_MIG_COUNT = re.compile(r"nvidia\.com/mig-.+\.count")
"""A label of gpu-feature-discovery that is there only where there are MIG devices."""


class NodeMigCapability(msgspec.Struct, frozen=True):
    """Whether a node's GPUs can be partitioned: yes, no, or (None) unknown, so that only a look there can tell."""

    capable: bool | None
    why: str


class WantedNodeLabels(msgspec.Struct, frozen=True):
    """What the controller asks of nodes. ``labels`` False leaves labels to the GPU Operator; ``default_config`` is the
    named config of a capable node that has no wish, empty for none.
    """

    labels: bool = True
    default_config: str = ""


def node_capability(labels: Mapping[str, str]) -> NodeMigCapability:
    """From labels alone: what gpu-feature-discovery or an agent found, else the product, else PCI ids."""
    if labels.get(names.GUEST_LABEL):
        return NodeMigCapability(False, "a virtual machine cannot partition the vGPU that it was given")
    label_value = labels.get(names.CAPABLE_LABEL)
    if label_value in ("true", "false"):
        return NodeMigCapability(label_value == "true", f"{names.CAPABLE_LABEL}={label_value}")
    product = labels.get(names.PRODUCT_LABEL, "")
    known = _products().get(_model(product)) if product else None
    if known:
        return NodeMigCapability(True, f"the catalog says so of {product}")
    found = [match["device"] for name, on in labels.items() if on == "true" and (match := _NFD.fullmatch(name))]
    if any(catalog.family_of_device(f"0x{device.upper()}10DE") for device in found if device):
        return NodeMigCapability(True, "the catalog knows its PCI device id")
    if known is not None:
        return NodeMigCapability(False, f"the catalog says so of {product}")
    if found or product or labels.get(names.PRESENT_LABEL) == "true":
        return NodeMigCapability(None, "it has an NVIDIA function that the catalog does not know by these labels")
    return NodeMigCapability(False, "no label tells of an NVIDIA GPU")


def patch(node: Node, wanted: WantedNodeLabels, reserved: Iterable[str] = ()) -> NodePatch:
    """What to change on a node; empty where it is as it should be. ``reserved`` are PCI addresses.

    A deploy label that has a value stays, ``false`` and a pause included; ``true`` is withdrawn where the node turned
    out to be none for us.
    """
    if _was_configured(node):
        wanted = msgspec.structs.replace(wanted, default_config="")
    labels = _labels(node.metadata.labels, wanted) if wanted.labels else {}
    value = ",".join(sorted(reserved)) or None
    before = node.metadata.annotations.get(names.RESERVED_ANNOTATION)
    annotations = {} if value == before else {names.RESERVED_ANNOTATION: value}
    return NodePatch(labels, annotations)


def _was_configured(node: Node) -> bool:
    """True if somebody took the wish away, or divided the GPUs by other means: a first wish would wipe them."""
    labels = node.metadata.labels
    divided = any(_MIG_COUNT.fullmatch(name) for name in labels) or "-MIG-" in labels.get(names.PRODUCT_LABEL, "")
    return divided or _AgentReport.of(node).withdrawn


class _AgentReport(msgspec.Struct, frozen=True):
    """What the agent says of its node."""

    reason: str = ""
    config: str = ""

    @property
    def withdrawn(self) -> bool:
        return self.reason == "NoWish" and bool(self.config)

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
    """A label that somebody set by hand on a node of which nothing is known must stay."""
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
    """PCI addresses by node of GPUs that are for virtual machines: shared, or claimed as a whole, which after a reboot
    NVIDIA's driver has first. An address that is none is skipped, and so is a claim on a network card or a disk.
    ``functions`` are by name.
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
    """Whether a claim may be about a GPU: neither its function nor its node's agent says otherwise."""
    function = functions.get(claim.name)
    refused = any(each.reason == NOT_SERVED for each in claim.status.conditions)
    return not refused and (function is None or function.status.vendor_id == NVIDIA)


def families(product: str) -> frozenset[str]:
    """The MIG families of the GPUs that a product label may stand for; none for one that cannot be partitioned."""
    return _products().get(_model(product), frozenset())


@cache
def _products() -> dict[str, frozenset[str]]:
    """Product labels of the catalog's GPUs, and their MIG families."""
    found: dict[str, frozenset[str]] = {}
    for device in catalog.devices():
        name = _label(device.name.partition(" (")[0])
        found[name] = found.get(name, frozenset()) | ({device.mig_family} if device.mig_family else frozenset())
    return found


def _label(name: str) -> str:
    """A product's name as a label value. Source: gpu-feature-discovery."""
    return "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", name).split())


def _model(product: str) -> str:
    """The label without what sharing or MIG added to it."""
    return product.removesuffix("-SHARED").partition("-MIG-")[0]
