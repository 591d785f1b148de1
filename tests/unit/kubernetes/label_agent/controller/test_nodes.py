"""Nodes that get the agent or a first request, and GPUs that are reserved."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, SRIOVGPUDevice
from aliquot.kubernetes.kinds.harvester_names import SKIP_BINDING_ANNOTATION
from aliquot.kubernetes.label_agent.controller import node_labels as nodes
from aliquot.kubernetes.label_agent.controller.node_labels import WantedNodeLabels

A100 = {names.PRODUCT_LABEL: "NVIDIA-A100-SXM4-40GB"}
NFD = {"feature.node.kubernetes.io/pci-10de.present": "true"}
BOTH = {names.DEPLOY_LABEL: "true", names.CONFIG_LABEL: "all-disabled"}
WANTED = WantedNodeLabels(True, "all-disabled")


def node(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Node:
    return Node(ObjectMeta(name="n", labels=labels, annotations=annotations or {}))


@pytest.mark.parametrize(
    ("labels", "capable"),
    [
        ({}, False),
        ({names.CAPABLE_LABEL: "true"}, True),
        ({names.CAPABLE_LABEL: "false"} | A100, False),
        ({names.CAPABLE_LABEL: ""} | A100, True),
        (A100, True),
        ({names.PRODUCT_LABEL: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, True),
        ({names.PRODUCT_LABEL: "NVIDIA-A100-SXM4-40GB-SHARED"}, True),
        ({names.PRODUCT_LABEL: "NVIDIA-B200"}, True),
        ({names.PRODUCT_LABEL: "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"}, True),
        ({names.PRODUCT_LABEL: "NVIDIA-H200-NVL-MIG-INVALID"}, True),
        ({names.PRODUCT_LABEL: "NVIDIA-L40S"}, False),
        ({names.PRODUCT_LABEL: "NVIDIA-X900"}, None),
        (NFD, None),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, None),
        ({"feature.node.kubernetes.io/pci-0302_10de_20b0.present": "true"}, True),
        ({"feature.node.kubernetes.io/pci-0302_10de_27b8.present": "true"}, None),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "false"}, False),
        ({"feature.node.kubernetes.io/pci-0302_1002.present": "true"}, False),
        (A100 | {names.GUEST_LABEL: "535.54"}, False),
        ({names.PRESENT_LABEL: "true"}, None),
        ({names.PRODUCT_LABEL: "NVIDIA-L4", "feature.node.kubernetes.io/pci-10de_20b0.present": "true"}, True),
    ],
)
def test_capability(labels: dict[str, str], capable: bool | None) -> None:
    found = nodes.node_capability(labels)
    assert found.capable is capable
    assert found.why


def test_every_product_of_the_catalog_that_has_mig_is_capable_by_its_label() -> None:
    for device in catalog.devices():
        label = device.name.partition(" (")[0].replace(" ", "-")
        if device.mig_family:
            assert nodes.node_capability({names.PRODUCT_LABEL: label}).capable is True


@pytest.mark.parametrize(
    ("labels", "changed"),
    [
        ({}, {}),
        (A100, BOTH),
        (NFD, {names.DEPLOY_LABEL: "true"}),
        (A100 | BOTH, {}),
        (A100 | {names.CONFIG_LABEL: "all-1g.5gb"}, {names.DEPLOY_LABEL: "true"}),
        (A100 | {names.CONFIG_LABEL: ""}, {names.DEPLOY_LABEL: "true"}),
        (A100 | {names.DEPLOY_LABEL: "false"}, {}),
        (A100 | {names.DEPLOY_LABEL: names.PAUSED}, {names.CONFIG_LABEL: "all-disabled"}),
        (A100 | {names.WORKLOAD_LABEL: "container"}, BOTH),
        (A100 | {names.WORKLOAD_LABEL: "nonsense"}, BOTH),
        (A100 | {names.WORKLOAD_LABEL: "vm-vgpu"}, {}),
        (A100 | {names.WORKLOAD_LABEL: "vm-vgpu"} | BOTH, {names.DEPLOY_LABEL: None}),
        (A100 | {names.GUEST_LABEL: "535"} | BOTH, {names.DEPLOY_LABEL: None}),
        ({names.CAPABLE_LABEL: "false", names.DEPLOY_LABEL: "true"}, {names.DEPLOY_LABEL: None}),
        ({names.CAPABLE_LABEL: "false", names.DEPLOY_LABEL: "false"}, {}),
        ({names.DEPLOY_LABEL: "true"}, {}),
        ({names.PRODUCT_LABEL: "NVIDIA-L40S", names.DEPLOY_LABEL: "true"}, {}),
    ],
)
def test_labels(labels: dict[str, str], changed: dict[str, str | None]) -> None:
    patch = nodes.patch(node(labels), WANTED)
    assert patch == NodePatch(changed)
    after = {name: value for name, value in (labels | patch.labels).items() if value is not None}
    assert not nodes.patch(node(after), WANTED)


def test_labels_are_the_operators_where_it_labels() -> None:
    assert not nodes.patch(node(A100), WantedNodeLabels(False, "all-disabled"))
    assert nodes.patch(node(A100), WantedNodeLabels(True, "")).labels == {names.DEPLOY_LABEL: "true"}


def test_reserved_gpus() -> None:
    devices = msgspec.convert(
        [
            {"metadata": {"name": "a"}, "spec": {"address": "0000:1B:00.0", "nodeName": "n", "enabled": True}},
            {"metadata": {"name": "b"}, "spec": {"address": "0000:08:00.0", "nodeName": "n", "enabled": True}},
            {"metadata": {"name": "c"}, "spec": {"address": "0000:09:00.0", "nodeName": "n", "enabled": False}},
            {"metadata": {"name": "d"}, "spec": {"address": "0000:0a:00.0", "nodeName": "m", "enabled": True}},
            {"metadata": {"name": "e"}, "spec": {"address": "rubbish", "nodeName": "m", "enabled": True}},
            {"metadata": {"name": "f"}, "spec": {"address": "0000:0b:00.0", "nodeName": "", "enabled": True}},
        ],
        tuple[SRIOVGPUDevice, ...],
    )
    found = nodes.reserved(devices)
    assert found == {"n": {"0000:08:00.0", "0000:1b:00.0"}, "m": {"0000:0a:00.0"}}
    value = "0000:08:00.0,0000:1b:00.0"
    assert nodes.patch(node({}), WANTED, found["n"]).annotations == {names.RESERVED_ANNOTATION: value}
    reported = {names.RESERVED_ANNOTATION: value}
    assert not nodes.patch(node({}, reported), WANTED, found["n"])
    assert nodes.patch(node({}, reported), WantedNodeLabels(False), ()).annotations == {names.RESERVED_ANNOTATION: None}


def test_claimed_gpus_are_reserved_as_well() -> None:
    # After a reboot NVIDIA's driver gets them first: a container that takes one then would withhold it from its VM.
    claims = msgspec.convert(
        [
            {"metadata": {"name": "a"}, "spec": {"address": "0000:0C:00.0", "nodeName": "n"}},
            {
                "metadata": {"name": "b", "annotations": {SKIP_BINDING_ANNOTATION: "true"}},
                "spec": {"address": "0000:08:00.4", "nodeName": "n"},
            },
        ],
        tuple[PCIDeviceClaim, ...],
    )
    assert nodes.reserved([], claims) == {"n": {"0000:0c:00.0"}}


def test_a_network_cards_claim_reserves_nothing() -> None:
    # The PCIDevice of pcidevices identifies a network card, and so does our agent's condition on the claim.
    spec = {"address": "0000:03:00.0", "nodeName": "n"}
    refused = {"conditions": [{"type": "Ready", "status": "False", "reason": "NotServed"}]}
    claims = msgspec.convert(
        [{"metadata": {"name": "a"}, "spec": spec}, {"metadata": {"name": "b"}, "spec": spec, "status": refused}],
        tuple[PCIDeviceClaim, ...],
    )
    nic, gpu = (msgspec.convert({"status": {"vendorId": vendor}}, PCIDevice) for vendor in ("8086", "10de"))
    assert nodes.reserved([], claims, {"a": nic}) == {}
    assert nodes.reserved([], claims, {"a": gpu}) == {"n": {"0000:03:00.0"}}


@pytest.mark.parametrize(
    ("labels", "annotations", "first"),
    [
        ({}, {}, True),
        ({}, {names.STATUS_ANNOTATION: '{"state":"","reason":"NoWish","message":"m"}'}, True),
        ({}, {names.STATUS_ANNOTATION: '{"state":"","reason":"NoWish","message":"m","config":"all-1g.5gb"}'}, False),
        ({}, {names.STATUS_ANNOTATION: "not ours"}, True),
        ({"nvidia.com/mig-1g.5gb.count": "7"}, {}, False),
        ({names.PRODUCT_LABEL: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, {}, False),
    ],
    ids=["new", "never had one", "withdrawn", "unreadable", "divided, mixed", "divided, single"],
)
def test_a_first_request_is_for_nodes_that_never_had_one(
    labels: dict[str, str], annotations: dict[str, str], first: bool
) -> None:
    # A user removes the label to leave the node as it is. A first request for all-disabled would wipe the GPUs.
    found = nodes.patch(node(A100 | {names.CAPABLE_LABEL: "true"} | labels, annotations), WANTED)
    assert (names.CONFIG_LABEL in found.labels) is first
