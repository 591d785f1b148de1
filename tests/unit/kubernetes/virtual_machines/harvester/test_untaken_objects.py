"""GPUs without a bound NVIDIA driver: a claim passes them through nevertheless, and vGPUs wait for the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.hardware.kernel.backend import Kernel
from aliquot.hardware.node_backend import NodeBackend
from aliquot.kubernetes.kinds.harvester_names import CLAIM_FINALIZER
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

PCI, NAME = "0000:08:00.0", "n-000008000"


@pytest.fixture
def a2(tmp_path: Path) -> One:
    one = One("a2:mdev", tmp_path, "n", PCI)
    node = one.node
    with node.backend.suspend():
        node.files.write("/sys/bus/pci/drivers/nvidia/unbind", PCI)
    node.backend.renumber()
    tools = node.whole.kernel.tools
    kernel = Kernel(node.files, tools, str(tmp_path), node.boot, clock=node.clock, all_drivers=True)
    node.whole = NodeBackend(node.backend, kernel)
    return one.settle()


def claim(one: One) -> One:
    spec = {"address": PCI, "nodeName": "n", "userName": "admin"}
    one.store.create("PCIDeviceClaim", {"metadata": {"name": NAME}, "spec": spec})
    return one.settle()


def test_it_is_claimed_and_given_back(a2: One) -> None:
    assert a2.store.get("PCIDevice", NAME)["status"].get("kernelDriverInUse", "") == ""
    claim(a2)
    made = a2.store.get("PCIDeviceClaim", NAME)
    assert made["status"]["passthroughEnabled"] is True
    assert made["status"].get("kernelDriverToUnbind", "") == ""
    assert ready(made) == ("True", "PassedThrough")
    assert made["metadata"]["finalizers"] == [CLAIM_FINALIZER]
    assert a2.store.get("PCIDevice", NAME)["status"]["kernelDriverInUse"] == "vfio-pci"
    a2.store.delete("PCIDeviceClaim", NAME)
    a2.settle()
    assert a2.store.of("PCIDeviceClaim") == {}
    assert a2.store.get("PCIDevice", NAME)["status"].get("kernelDriverInUse", "") == ""


def test_sharing_it_waits_for_the_driver(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    device = a2.store.get("SRIOVGPUDevice", NAME)
    assert ready(device) == ("Unknown", "NoDriver")
    assert "NVIDIA's driver is not bound to" in message(device)
    assert a2.node.backend.read().gpus == ()
