"""The devices that a node publishes for VMs, and those after a change of its options."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.dra.agent.claim_types import DeviceLocation
from aliquot.kubernetes.dra.agent.loop import NodeOffer
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.model.vm_service import read_vm_policy

PREFIX = "vm-0000-08-00-0"


def devices(vms: str) -> NodeDevices:
    return NodeDevices("n", DriverNaming(), PublishPolicy(), "any", read_vm_policy(vms))


def node() -> Inventory:
    return factory.node(msgspec.structs.replace(factory.gpu("NVIDIA A2", on=False), minor=0))


def chosen(made: NodeDevices, *allocated: str) -> list[str]:
    empty = frozenset[str]()
    offer = NodeOffer(node(), frozenset(allocated), empty, frozenset(), empty)
    return [device.name for device in made.choose(offer).devices]


def test_a_gpu_for_vms_is_published_and_found() -> None:
    made = devices("all=A2-8Q")
    assert chosen(made) == [f"{PREFIX}-a2-8q-0", f"{PREFIX}-a2-8q-1", f"{PREFIX}-vfio"]
    pci = node().gpus[0].pci
    assert made.find(node(), "n-aliquot", f"{PREFIX}-vfio") == DeviceLocation(pci, vm="vfio")
    assert made.find(node(), "n-aliquot", f"{PREFIX}-a2-8q-1") == DeviceLocation(pci, vm="A2-8Q")
    assert made.find(node(), "n-aliquot", "gpu-0") is None
    assert chosen(devices("")) == ["gpu-0"]


def test_nothing_is_free_beside_a_device_of_other_options() -> None:
    # Its counters are others than those of the devices that are offered now.
    assert chosen(devices("all=A2-8Q"), "gpu-0") == []
    assert chosen(devices("all=A2-8Q"), f"{PREFIX}-a2-4q-0") == []
    assert chosen(devices(""), f"{PREFIX}-vfio") == []


def test_the_log_says_once_what_a_gpu_does_not_offer(caplog: pytest.LogCaptureFixture) -> None:
    made = devices("all=A2-9Q")
    for _ in range(2):
        assert chosen(made) == [f"{PREFIX}-vfio"]
    assert [each.getMessage() for each in caplog.records if "A2-9Q" in each.getMessage()] == [made.refusals[0]]
    assert made.refusals[0].startswith("GPU 0000:08:00.0 does not offer VMs A2-9Q: ")
    chosen(made := devices("all=A2-8Q+mig-backed"))
    assert made.refusals == ("GPU 0000:08:00.0 does not offer VMs MIG-backed vGPUs: NVIDIA A2 has none",)
