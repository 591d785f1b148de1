"""VMs that use the devices of the devices agent: from a vGPU's object to a VM that has it, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION, object_name
from support.cluster import Cluster
from support.devicesagent import DevicesAgent, MakeDevices
from support.kubevirt.machines import Launcher
from support.kubevirt.players import VmCluster

JSON = dict[str, Any]
A2 = "0000:01:00.0"
ONE, TWO = "0000:01:00.4", "0000:01:00.5"
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
PERMITTED: dict[str, JSON] = {
    "mdev": {"mediatedDevices": [{"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": RESOURCE}]},
    "vfio": {"pciHostDevices": [{"pciVendorSelector": "10de:25b6", "resourceName": RESOURCE}]},
}
for _kinds in PERMITTED.values():
    for _rows in _kinds.values():
        _rows[0]["externalResourceProvider"] = True


@pytest.fixture(params=["mdev", "vfio"])
def bed(
    request: pytest.FixtureRequest, cluster: Cluster, make_devices: MakeDevices
) -> Iterator[tuple[VmCluster, DevicesAgent]]:
    """Build a node with a kubelet, KubeVirt, and an agent that offers two A2-4Q."""
    agent = make_devices(f"a2:{request.param}")
    environment = VmCluster(cluster)
    environment.install(PERMITTED[request.param])
    node = environment.node(agent.name)
    agent.arguments = ["--kubelet-dir", str(node.kubelet.directory.parent)]
    agent.start()
    agent.enabled(A2)
    for each in (ONE, TWO):
        agent.carrying(each)
    yield environment, agent
    agent.kill()
    environment.close()


def offered(environment: VmCluster, agent: DevicesAgent) -> str:
    environment.settle()
    return str(agent.node()["status"].get("allocatable", {}).get(RESOURCE, "none"))


def test_a_machine_gets_a_vgpu_and_gives_it_back(bed: tuple[VmCluster, DevicesAgent]) -> None:
    environment, agent = bed
    agent.until(lambda: offered(environment, agent) == "2", "two to be offered")
    environment.create("desk", gpus=[RESOURCE])
    environment.until(lambda: environment.phase("desk") == "Running", "the machine to run")
    agent.until(lambda: environment.annotation("desk", ALLOCATION_ANNOTATION), "its annotation")
    has = [
        each
        for each in (ONE, TWO)
        if object_name(agent.name, each) in environment.annotation("desk", ALLOCATION_ANNOTATION)
    ]
    assert len(has) == 1
    environment.stop("desk")
    environment.until(lambda: not environment.launchers("desk"), "it to stop")
    agent.until(lambda: not environment.annotation("desk", ALLOCATION_ANNOTATION), "the annotation to go")


def test_what_kubelet_allocated_is_not_destroyed_before_it_is_opened(bed: tuple[VmCluster, DevicesAgent]) -> None:
    # The kernel does not show it: the VM's process has not opened the vGPU yet.
    environment, agent = bed
    agent.until(lambda: offered(environment, agent) == "2", "two to be offered")
    environment.create("desk", gpus=[RESOURCE])
    environment.until(lambda: environment.phase("desk") == "Running", "the machine to run")
    taken = given(environment.launcher("desk"), agent)
    agent.set("vgpudevices", taken, {"enabled": False})
    agent.until(lambda: agent.condition("vgpudevices", taken).get("reason") == "Held", "the refusal")
    assert "virt-launcher-desk" in agent.condition("vgpudevices", taken)["message"]
    other = TWO if taken == ONE else ONE
    agent.set("vgpudevices", other, {"enabled": False})
    agent.until(lambda: set(agent.vgpus()) == {taken}, "the other one to go")
    environment.stop("desk")
    environment.until(lambda: not environment.launchers("desk"), "it to stop")
    agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")
    agent.until(lambda: offered(environment, agent) == "0", "none to be offered")


def test_a_new_agent_disturbs_no_machine(bed: tuple[VmCluster, DevicesAgent]) -> None:
    # An upgrade: the plugin returns, and allocated devices stay in use.
    environment, agent = bed
    agent.until(lambda: offered(environment, agent) == "2", "two to be offered")
    environment.create("desk", gpus=[RESOURCE])
    environment.until(lambda: environment.phase("desk") == "Running", "the machine to run")
    calls = len(agent.writes())
    agent.stop()
    agent.start()
    agent.until(lambda: agent.observations() >= 2, "the new agent's looks")
    agent.until(lambda: offered(environment, agent) == "2", "two to be offered again")
    environment.create("second", gpus=[RESOURCE])
    environment.until(lambda: environment.phase("second") == "Running", "a second machine")
    assert environment.phase("desk") == "Running"
    assert len(agent.writes()) == calls


def given(launcher: Launcher, agent: DevicesAgent) -> str:
    """Return the virtual function of the devices that a launcher was given."""
    (device,) = launcher.ids("MDEV_PCI_RESOURCE") or launcher.ids("PCI_RESOURCE")
    rows = agent.sim.show()["gpus"][0]["vgpus"]
    return str(next(row["function"] for row in rows if device in (row["uuid"], row["function"])))
