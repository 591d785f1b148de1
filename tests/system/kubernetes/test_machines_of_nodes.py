"""From a GPU's object to a VM that has a vGPU of it, and back: real agents on simulated nodes, the kubelet double, and
the simulated actors of KubeVirt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION, object_name
from aliquot.sim.client import SimClient
from support.cluster import Cluster
from support.devicesagent import DevicesAgent, MakeDevices
from support.kubevirt.machines import Launcher
from support.kubevirt.players import VmCluster

A2 = "0000:01:00.0"
ONE, TWO, TEN = "0000:01:00.4", "0000:01:00.5", "0000:01:01.6"
RESOURCE, TYPE = "nvidia.com/NVIDIA_A2-4Q", "NVIDIA A2-4Q"
PERMITTED = {
    "mdev": {"mediatedDevices": [{"mdevNameSelector": TYPE, "resourceName": RESOURCE}]},
    "vfio": {"pciHostDevices": [{"pciVendorSelector": "10de:25b6", "resourceName": RESOURCE}]},
}
ENV = {"mdev": "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q", "vfio": "PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q"}
FRAMEWORKS = pytest.mark.parametrize("kernel", ["mdev", "vfio"])


class Site:
    """Nodes, agents and simulated actors. A launcher opens its devices on the simulated machine, as QEMU does."""

    def __init__(self, cluster: Cluster, make: MakeDevices, kernel: str, count: int) -> None:
        self.environment = VmCluster(cluster)
        self.environment.install({key: [*rows] for key, rows in PERMITTED[kernel].items()})
        self.kernel = kernel
        self.agents = [make(f"a2:{kernel}") for _ in range(count)]
        for agent in self.agents:
            start, stop = partial(_open, agent.sim), partial(_close, agent.sim)
            node = self.environment.node(agent.name, on_start=start, on_stop=stop)
            agent.arguments = ["--kubelet-dir", str(node.kubelet.directory.parent)]
            agent.start()

    def offered(self, agent: DevicesAgent, resource: str = RESOURCE) -> int | None:
        figures: dict[str, str] = agent.node()["status"].get("allocatable", {})
        return int(figures[resource]) if resource in figures else None

    def runs(self, name: str) -> Launcher:
        self.environment.until(
            lambda: self.environment.phase(name) == "Running", f"{name} to run: {self.environment.why(name)}", 60
        )
        return self.environment.launcher(name)

    def messages(self, name: str) -> dict[str, dict[str, list[str]]]:
        text = self.environment.annotation(name, ALLOCATION_ANNOTATION)
        return dict(json.loads(text)) if text else {}


def _open(sim: SimClient, launcher: Launcher) -> None:
    ids = [each for value in launcher.environment.values() for each in value.split(",")]
    sim.start_vm(launcher.pod, *ids)


def _close(sim: SimClient, launcher: Launcher) -> None:
    if any(vm["name"] == launcher.pod for vm in sim.show()["vms"]):  # a reboot has ended it already
        sim.stop_vm(launcher.pod)


@pytest.fixture
def site(cluster: Cluster, make_devices: MakeDevices, request: pytest.FixtureRequest) -> Iterator[Site]:
    kernel, count = request.param
    made = Site(cluster, make_devices, kernel, count)
    yield made
    made.environment.close()


def sites(count: int, *kernels: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [(kernel, count) for kernel in kernels], indirect=True, ids=kernels)


@sites(2, "mdev", "vfio")
def test_from_enable_to_a_machine_with_a_vgpu_and_back(site: Site) -> None:
    # The walk-through of the vGPU documentation, on two nodes with one vGPU each.
    environment, (first, second) = site.environment, site.agents
    for agent, function in ((first, ONE), (second, TEN)):
        agent.enabled(A2)
        agent.carrying(function)
    environment.until(lambda: [site.offered(a) for a in site.agents] == [1, 1], "one vGPU on each node")
    places = {}
    for name in ("one", "two"):
        environment.create(name, gpus=[RESOURCE])
        launcher = site.runs(name)
        places[launcher.node] = name
        assert list(launcher.environment) == [ENV[site.kernel]]
    assert set(places) == {first.name, second.name}
    environment.create("three", gpus=[RESOURCE])
    environment.until(
        lambda: environment.why("three") == f"0/2 nodes are available: 2 Insufficient {RESOURCE}.", "no third"
    )

    name = places[first.name]
    first.until(lambda: site.messages(name), "the annotation")
    assert site.messages(name) == {"gpus": {RESOURCE: [object_name(first.name, ONE)]}}
    first.set("vgpudevices", ONE, {"enabled": False})
    first.until(lambda: first.condition("vgpudevices", ONE).get("status") == "False", "the refusal")
    reported = first.condition("vgpudevices", ONE)
    assert (reported["reason"], first.vgpus()) == ("Held", {ONE: TYPE}), reported
    environment.until(lambda: site.offered(first) == 0, "it is offered no more")
    assert environment.phase(name) == "Running"

    environment.stop(name)
    environment.until(lambda: environment.instance(name) is None, "the machine to stop")
    first.until(lambda: first.vgpus() == {}, "the vGPU to go, once it is idle")
    first.until(lambda: not site.messages(name), "the annotation to go")
    devices = environment.machine(name)["spec"]["template"]["spec"]["domain"]["devices"]["gpus"]
    assert [each["name"] for each in devices] == [object_name(first.name, ONE)], "what it had"
    environment.settle()
    assert environment.phase("three") == "Scheduling"

    first.carrying(TWO)
    assert site.runs("three").node == first.name
    first.until(
        lambda: site.messages("three") == {"gpus": {RESOURCE: [object_name(first.name, TWO)]}}, "its annotation"
    )


@sites(1, "mdev", "vfio")
def test_an_agent_that_is_replaced_disturbs_no_machine(site: Site) -> None:
    # Our own upgrade: the plugin's sockets go and come, and the kubelet's allocations stay.
    environment, (agent,) = site.environment, site.agents
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.carrying(TWO)
    environment.until(lambda: site.offered(agent) == 2, "two vGPUs")
    environment.create("one", gpus=[RESOURCE])
    first = site.runs("one")
    calls = len(agent.writes())
    assert agent.stop() == 0
    environment.until(lambda: site.offered(agent) == 0, "no plugin offers anything")
    assert environment.phase("one") == "Running"
    agent.start()
    environment.until(lambda: site.offered(agent) == 2, "both are there again")
    assert len(agent.writes()) == calls
    environment.create("two", gpus=[RESOURCE])
    second = site.runs("two")
    assert environment.launcher("one") == first
    assert first.environment != second.environment, "no vGPU twice"


@sites(1, "mdev")
def test_a_kubelet_that_restarts_is_reported_of_the_vgpus_again(site: Site) -> None:
    environment, (agent,) = site.environment, site.agents
    agent.enabled(A2)
    agent.carrying(ONE)
    environment.until(lambda: site.offered(agent) == 1, "one vGPU")
    environment.machines[agent.name].restart_kubelet()
    environment.create("one", gpus=[RESOURCE])
    site.runs("one")


@sites(1, "vfio")
def test_exhausted_and_withdrawn_types_read_zero(site: Site) -> None:
    # As in the documentation's listing of a node: a type that was configured once stays, as 0.
    environment, (agent,) = site.environment, site.agents
    agent.enabled(A2)
    agent.carrying(ONE, "NVIDIA A2-4C")
    environment.until(lambda: agent.node()["status"]["allocatable"].get("nvidia.com/NVIDIA_A2-4C") == "1", "a 4C")
    agent.set("vgpudevices", ONE, {"enabled": False})
    agent.until(lambda: agent.vgpus() == {}, "the 4C to go")
    agent.carrying(ONE, TYPE)
    environment.until(lambda: site.offered(agent) == 1, "a 4Q")
    figures = agent.node()["status"]["allocatable"]
    assert (figures["nvidia.com/NVIDIA_A2-4C"], figures[RESOURCE]) == ("0", "1")


@sites(1, "mdev", "vfio")
def test_after_a_reboot_the_machine_has_its_vgpu_again(site: Site) -> None:
    """Capacity was 0 for good after a power loss, and the machine could not be scheduled."""
    environment, (agent,) = site.environment, site.agents
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.carrying(TEN)
    environment.until(lambda: site.offered(agent) == 2, "two vGPUs")
    environment.create("one", gpus=[RESOURCE])
    before = site.runs("one")
    agent.until(lambda: site.messages("one"), "the annotation")
    agent.kill()
    agent.sim.reboot()
    environment.lose(agent.name)
    assert agent.vgpus() == {}
    environment.machines[agent.name].restart_kubelet()
    environment.until(lambda: site.offered(agent) == 0, "no plugin offers anything")
    agent.start()
    environment.until(lambda: site.offered(agent) == 2, "both vGPUs, and no third", 60)
    after = site.runs("one")
    assert after.pod != before.pod
    agent.until(lambda: site.messages("one"), "the annotation")


@sites(1, "mdev")
def test_a_whole_gpu_goes_to_a_machine_and_comes_back(site: Site) -> None:
    # A claim that is deleted while a VM runs is released when the VM has stopped, and not before.
    environment, (agent,) = site.environment, site.agents
    agent.until(lambda: agent.one("pcidevices", A2), "the function's object")
    name = object_name(agent.name, A2)
    claim = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": name},
        "spec": {"address": A2, "nodeName": agent.name, "userName": "admin"},
    }
    path = "/apis/devices.harvesterhci.io/v1beta1/pcideviceclaims"
    agent.call("POST", path, claim)
    agent.until(lambda: agent.one("pcideviceclaims", A2).get("status", {}).get("passthroughEnabled"), "the hand-over")
    resource = agent.one("pcidevices", A2)["status"]["resourceName"]
    environment.until(lambda: site.offered(agent, resource) == 1, f"{resource} to be offered")
    environment.permit({"pciHostDevices": [{"pciVendorSelector": "10de:25b6", "resourceName": resource}]})
    environment.create("one", host_devices=[resource])
    launcher = site.runs("one")
    assert list(launcher.environment.values()) == [A2]
    agent.until(lambda: site.messages("one") == {"hostdevices": {resource: [name]}}, "the annotation")
    agent.call("DELETE", f"{path}/{name}")
    environment.until(lambda: site.offered(agent, resource) == 0, "it to be offered no more")
    agent.at_rest(2)
    assert agent.one("pcideviceclaims", A2)["status"]["passthroughEnabled"], "a machine has it"
    environment.stop("one")
    environment.until(lambda: environment.instance("one") is None, "the machine to stop")
    agent.until(lambda: not agent.one("pcideviceclaims", A2), "the claim to go")
    agent.until(lambda: agent.status_of("pcidevices", A2).get("kernelDriverInUse") == "nvidia", "its driver again")
