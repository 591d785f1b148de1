"""A Harvester node whose agent serves all devices: a network card and a vGPU in one VM, and what may not disturb it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION, object_name
from support.cluster import Cluster
from support.deployed import ALL_DEVICES, apply
from support.devicesagent import API, DevicesAgent, MakeDevices
from support.kubevirt.players import VmCluster

A2, VGPU = "0000:08:00.0", "0000:08:00.4"
NIC, DISK = "0000:04:00.1", "0000:03:00.0"
TYPE = "nvidia.com/NVIDIA_A2-4Q"


@pytest.fixture
def bed(cluster: Cluster, make_devices: MakeDevices) -> Iterator[tuple[VmCluster, DevicesAgent]]:
    agent = make_devices("a2:mdev:host:bus08")
    environment = VmCluster(cluster)
    environment.install()
    apply(cluster, ALL_DEVICES)
    node = environment.node(agent.name)
    agent.arguments = ["--all-devices", "--kubelet-dir", str(node.kubelet.directory.parent)]
    agent.start()
    yield environment, agent
    agent.kill()
    environment.close()


def claim(agent: DevicesAgent, address: str) -> None:
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": object_name(agent.name, address)},
        "spec": {"address": address, "nodeName": agent.name, "userName": "admin"},
    }
    agent.call("POST", f"{API}/pcideviceclaims", body)


def release(agent: DevicesAgent, address: str) -> None:
    agent.call("DELETE", f"{API}/pcideviceclaims/{object_name(agent.name, address)}")


def driver(agent: DevicesAgent, address: str) -> str:
    return str(agent.status_of("pcidevices", address).get("kernelDriverInUse", ""))


def count(environment: VmCluster, agent: DevicesAgent, resource: str) -> str:
    environment.settle()
    return str(agent.node()["status"].get("allocatable", {}).get(resource, "none"))


def test_a_card_and_a_vgpu_in_one_machine(bed: tuple[VmCluster, DevicesAgent]) -> None:
    environment, agent = bed
    agent.enabled(A2)
    agent.carrying(VGPU)
    agent.until(lambda: driver(agent, NIC) == "ixgbe", "the card's object")
    claim(agent, NIC)
    agent.until(lambda: agent.ready("pcideviceclaims", NIC), "the card")
    resource = agent.status_of("pcidevices", NIC)["resourceName"]
    agent.until(lambda: count(environment, agent, resource) == "1", "the card to be offered")
    agent.until(lambda: count(environment, agent, TYPE) == "1", "the vGPU to be offered")
    environment.create("desk", gpus=[TYPE], host_devices=[resource])
    environment.until(lambda: environment.phase("desk") == "Running", "the machine to run")
    assert environment.launcher("desk").ids("PCI_RESOURCE") == (NIC,)
    name = object_name(agent.name, NIC)
    agent.until(lambda: name in environment.annotation("desk", ALLOCATION_ANNOTATION), "its annotation")

    # The kubelet starts again, and so does the agent: the card stays offered, with its driver.
    environment.machines[agent.name].kubelet.restart()
    agent.until(lambda: count(environment, agent, resource) == "1", "the card to be offered again")
    agent.stop()
    agent.start()
    agent.until(lambda: agent.observations() >= 2, "the new agent")
    assert environment.phase("desk") == "Running"

    # What kubelet allocated stays, and the claim names the pod.
    release(agent, NIC)
    agent.until(lambda: agent.condition("pcideviceclaims", NIC).get("reason") == "Held", "the refusal")
    assert "virt-launcher-desk" in agent.condition("pcideviceclaims", NIC)["message"]
    assert driver(agent, NIC) == "vfio-pci"
    environment.stop("desk")
    environment.until(lambda: not environment.launchers("desk"), "it to stop")
    agent.until(lambda: agent.one("pcideviceclaims", NIC) == {}, "the claim to go", 90)
    agent.until(lambda: driver(agent, NIC) == "ixgbe", "the card's driver")


def test_the_disk_of_the_host_is_refused(bed: tuple[VmCluster, DevicesAgent]) -> None:
    _, agent = bed
    agent.until(lambda: driver(agent, DISK) == "hpsa", "the disk's object")
    claim(agent, DISK)
    agent.until(lambda: agent.condition("pcideviceclaims", DISK).get("reason") == "Held", "the refusal")
    assert "sda2 is mounted on /" in agent.condition("pcideviceclaims", DISK)["message"]
    agent.until(lambda: "Held" in [event["reason"] for event in agent.reported(DISK)], "its event")
    assert driver(agent, DISK) == "hpsa"

    # The attempts go on, with longer and longer pauses; the objects stay as they are.
    agent.at_rest()
    versions = agent.versions()
    agent.at_rest()
    assert agent.versions() == versions
