"""Objects of nodes that are gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    PCIDevice,
    PCIDeviceClaim,
    SRIOVGPUDevice,
    VGPUDevice,
)
from aliquot.kubernetes.kinds.harvester_peripherals import (
    ALL_KINDS,
    USB_FINALIZER,
    SRIOVNetworkDevice,
    USBDevice,
    USBDeviceClaim,
)
from aliquot.kubernetes.virtual_machines.harvester.orphaned_objects import node_of, orphans


def made(kind: type[KubeObject], node: str, **meta: Any) -> Any:
    where = (
        {"status": {"nodeName": node}}
        if kind in (PCIDevice, USBDevice, USBDeviceClaim)
        else {"spec": {"nodeName": node}}
    )
    return msgspec.convert({"metadata": {"name": "x", "uid": "u", "resourceVersion": "7"} | meta, **where}, kind)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_kind_says_its_node(kind: type[KubeObject]) -> None:
    assert node_of(made(kind, "n1")) == "n1"
    assert node_of(made(kind, "", labels={names.NODE_LABEL: "n2"})) == "n2"
    assert orphans({"n1"}, [made(kind, "n1")]) == ()
    assert [each.node for each in orphans({"n2"}, [made(kind, "n1")])] == ["n1"]
    assert orphans({"n2"}, [made(kind, "")]) == ()


def test_what_belongs_to_another_goes_first() -> None:
    found = orphans(set(), [made(kind, "gone") for kind in ALL_KINDS])
    assert [each.kind for each in found] == [
        *(PCIDeviceClaim, VGPUDevice, MigConfiguration, SRIOVGPUDevice, PCIDevice),
        *(USBDeviceClaim, USBDevice, SRIOVNetworkDevice),
    ]


@pytest.mark.parametrize(
    ("finalizers", "left"),
    [([], None), ([names.CLAIM_FINALIZER], ()), (["a", names.CLAIM_FINALIZER, "b"], ("a", "b")), (["a"], None)],
)
def test_our_finalizer_goes_and_others_stay(finalizers: list[str], left: tuple[str, ...] | None) -> None:
    found = orphans(set(), [made(PCIDeviceClaim, "gone", finalizers=finalizers)])
    assert [(each.finalizers, each.deleting, each.uid, each.version) for each in found] == [(left, False, "u", "7")]


def test_it_was_deleted_already() -> None:
    stamp = "2026-01-02T03:04:05Z"
    assert orphans(set(), [made(PCIDeviceClaim, "gone", deletionTimestamp=stamp)])[0].deleting


def test_a_usb_claim_that_names_no_node_goes_with_its_device() -> None:
    claim = made(USBDeviceClaim, "", finalizers=[USB_FINALIZER])
    found = orphans({"n1"}, [made(USBDevice, "gone"), claim])
    assert [(each.kind, each.node, each.finalizers) for each in found] == [
        (USBDeviceClaim, "gone", ()),
        (USBDevice, "gone", None),
    ]
    assert orphans({"n1"}, [made(USBDevice, "n1"), claim]) == ()
