"""The devices agent on a simulated node beside an API server: from a GPU that nobody has touched to vGPUs and back."""

from __future__ import annotations

import pytest

from aliquot.integrations.kubernetes.harvester.names import DRIVER_NEEDED_LABEL, object_name
from devicesagent import DevicesAgent, MakeDevices

A2 = "0000:01:00.0"
ONE, TWO, TEN = "0000:01:00.4", "0000:01:00.5", "0000:01:01.6"
WORLDS = pytest.mark.parametrize("world", ["mdev", "vfio"])


def enabled(agent: DevicesAgent, pci: str = A2) -> None:
    """Virtual functions are switched on, through the object."""
    agent.until(lambda: agent.one("sriovgpudevices", pci), "the GPU's object")
    agent.set("sriovgpudevices", pci, {"enabled": True})
    agent.until(lambda: len(agent.all("vgpudevices")) == 16, "16 virtual functions")


def carrying(agent: DevicesAgent, function: str, name: str = "NVIDIA A2-4Q") -> None:
    """A virtual function carries a vGPU, and its object says so."""
    agent.set("vgpudevices", function, {"enabled": True, "vGPUTypeName": name})
    agent.until(lambda: configured(agent, function) == name, f"{name} on {function}")


def configured(agent: DevicesAgent, function: str) -> str:
    status = agent.one("vgpudevices", function).get("status", {})
    return str(status.get("configureVGPUTypeName", "")) if status.get("vGPUStatus") == "vGPUConfigured" else ""


class TestAGpuThatNobodyTouched:
    def test_it_is_shown_and_left_as_it_is(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.until(lambda: agent.ready("sriovgpudevices", A2), "the GPU's object")
        found = agent.one("sriovgpudevices", A2)
        assert found["spec"] == {"address": A2, "enabled": False, "nodeName": agent.name}
        assert found["metadata"]["labels"] == {"nodename": agent.name}
        assert agent.all("vgpudevices") == {}
        assert agent.all("pcidevices")[object_name(agent.name, A2)]["status"]["deviceId"] == "25b6"
        agent.until(lambda: agent.labels().get(DRIVER_NEEDED_LABEL) == "true", "the driver's label")
        agent.until(lambda: agent.standing().get("state") == "working", "the node's annotation")
        assert agent.writes() == []


@WORLDS
class TestFromEnableToAVgpuAndBack:
    def test_the_walk(self, make_devices: MakeDevices, world: str) -> None:
        agent = make_devices(f"a2:{world}")
        agent.start()
        enabled(agent)
        status = agent.one("sriovgpudevices", A2)["status"]
        assert len(status["vfAddresses"]) == 16
        assert status["vfAddresses"][:3] == [ONE, TWO, TEN], "the lexical order of virtfn*"
        assert status["vGPUDevices"] == [object_name(agent.name, each) for each in status["vfAddresses"]]
        free = agent.one("vgpudevices", ONE)["status"]["availableTypes"]
        assert free["NVIDIA A2-4Q"] == ("nvidia-746" if world == "mdev" else "746")
        carrying(agent, ONE)
        assert agent.vgpus() == {ONE: "NVIDIA A2-4Q"}
        agent.until(lambda: "NVIDIA A2-8Q" not in self.types(agent, TWO), "siblings to be recalculated")
        agent.set("vgpudevices", ONE, {"enabled": False})
        agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")
        agent.until(lambda: self.types(agent, TWO) == set(free), "all types again")
        agent.set("sriovgpudevices", A2, {"enabled": False})
        agent.until(lambda: agent.all("vgpudevices") == {}, "the functions' objects to go")
        assert agent.sim.show()["gpus"][0]["functions"] == 0

    def types(self, agent: DevicesAgent, function: str) -> set[str]:
        return set(agent.one("vgpudevices", function).get("status", {}).get("availableTypes", {}))
