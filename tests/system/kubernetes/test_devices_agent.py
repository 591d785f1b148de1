"""The devices agent on a simulated node beside an API server: from an untouched GPU to vGPUs and back."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.kinds.harvester_names import DRIVER_NEEDED_LABEL, PARENT_LABEL, object_name
from support.devicesagent import DevicesAgent, MakeDevices

A2 = "0000:01:00.0"
ONE, TWO, TEN = "0000:01:00.4", "0000:01:00.5", "0000:01:01.6"
FRAMEWORKS = pytest.mark.parametrize("framework", ["mdev", "vfio"])


def types(agent: DevicesAgent, function: str) -> set[str]:
    return set(agent.one("vgpudevices", function).get("status", {}).get("availableTypes", {}))


class TestAnUntouchedGpu:
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

    def test_an_idle_node_writes_nothing(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio*2")
        agent.start()
        agent.enabled(A2)
        agent.at_rest()
        objects, calls = agent.everything(), len(agent.writes())
        versions = agent.versions()
        agent.at_rest()
        assert agent.versions() == versions
        assert (agent.everything(), len(agent.writes())) == (objects, calls)


@FRAMEWORKS
class TestFromEnableToAVgpuAndBack:
    def test_the_walk(self, make_devices: MakeDevices, framework: str) -> None:
        agent = make_devices(f"a2:{framework}")
        agent.start()
        agent.enabled(A2)
        status = agent.one("sriovgpudevices", A2)["status"]
        assert len(status["vfAddresses"]) == 16
        assert status["vfAddresses"][:3] == [ONE, TWO, TEN], "the lexical order of virtfn*"
        assert status["vGPUDevices"] == [object_name(agent.name, each) for each in status["vfAddresses"]]
        free = agent.one("vgpudevices", ONE)["status"]["availableTypes"]
        assert free["NVIDIA A2-4Q"] == ("nvidia-746" if framework == "mdev" else "746")
        agent.carrying(ONE)
        assert agent.vgpus() == {ONE: "NVIDIA A2-4Q"}
        agent.until(lambda: "NVIDIA A2-8Q" not in types(agent, TWO), "siblings to be recalculated")
        agent.set("vgpudevices", ONE, {"enabled": False})
        agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")
        agent.until(lambda: types(agent, TWO) == set(free), "all types again")
        agent.set("sriovgpudevices", A2, {"enabled": False})
        agent.until(lambda: agent.all("vgpudevices") == {}, "the functions' objects to go")
        assert agent.sim.show()["gpus"][0]["functions"] == 0

    def test_a_new_agent_finds_all_as_it_is_and_touches_nothing(
        self, make_devices: MakeDevices, framework: str
    ) -> None:
        agent = make_devices(f"a2:{framework}")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE)
        agent.carrying(TWO)
        agent.at_rest()
        versions, calls = agent.versions(), len(agent.writes())
        assert agent.stop() == 0
        agent.start()
        agent.until(lambda: agent.observations() >= 3, "three looks of the new agent")
        assert (agent.versions(), len(agent.writes())) == (versions, calls)

    def test_a_reboot_is_undone(self, make_devices: MakeDevices, framework: str) -> None:
        agent = make_devices(f"a2:{framework}")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE)
        agent.carrying(TEN)
        uuids = {v["uuid"] for v in agent.sim.show()["gpus"][0]["vgpus"]}
        agent.stop()
        agent.sim.reboot()
        assert agent.vgpus() == {}
        agent.start()
        agent.until(lambda: agent.vgpus() == {ONE: "NVIDIA A2-4Q", TEN: "NVIDIA A2-4Q"}, "both vGPUs again")
        agent.until(lambda: agent.configured(ONE) and agent.configured(TEN), "both are reported as configured")
        assert framework == "vfio" or {v["uuid"] for v in agent.sim.show()["gpus"][0]["vgpus"]} == uuids

    def test_what_lives_is_adopted(self, make_devices: MakeDevices, framework: str) -> None:
        # Installed on a configured machine: nothing is switched, and the objects report the current state.
        agent = make_devices(f"a2:{framework}")
        agent.aliquot("apply", "--gpu", "0", "--vgpu", "A2-8Q")
        calls = len(agent.writes())
        agent.start()
        agent.until(lambda: agent.configured(ONE) == "NVIDIA A2-8Q", "the living vGPU's object")
        assert agent.one("sriovgpudevices", A2)["spec"]["enabled"]
        assert agent.one("vgpudevices", ONE)["spec"]["enabled"]
        agent.at_rest()
        assert len(agent.writes()) == calls


class TestTheClaimOfAVendorVfioVgpu:
    def test_it_is_there_exactly_while_the_vgpu_is(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.start()
        agent.enabled(A2)
        assert agent.all("pcideviceclaims") == {}
        agent.carrying(ONE)
        claim = agent.one("pcideviceclaims", ONE)
        assert claim["metadata"]["annotations"]["pcidevices.harvesterhci.io/skip-vfio-binding"] == "true"
        assert [owner["kind"] for owner in claim["metadata"]["ownerReferences"]] == ["PCIDevice", "VGPUDevice"]
        device = agent.one("pcidevices", ONE)
        assert device["status"]["resourceName"] == "nvidia.com/NVIDIA_A2-4Q"
        assert device["metadata"]["labels"][PARENT_LABEL] == object_name(agent.name, A2)
        agent.set("vgpudevices", ONE, {"enabled": False})
        agent.until(lambda: agent.all("pcideviceclaims") == {}, "the claim to go")
        agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")


class TestAnImpossibleRequest:
    def test_it_is_reported_why_and_the_others_are_met(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE, "NVIDIA A2-8Q")
        agent.set("vgpudevices", TWO, {"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"})
        agent.until(lambda: agent.condition("vgpudevices", TWO).get("status") == "False", "the refusal")
        reported = agent.condition("vgpudevices", TWO)
        assert reported["reason"].isalnum()
        assert "A2-8Q" in reported["message"] or "size" in reported["message"]
        agent.until(lambda: any(e["reason"] == reported["reason"] for e in agent.reported(TWO)), "an event")
        agent.carrying(TEN, "NVIDIA A2-8Q")
        assert agent.vgpus() == {ONE: "NVIDIA A2-8Q", TEN: "NVIDIA A2-8Q"}

    def test_a_vgpu_in_use_stays_until_its_machine_is_off(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE)
        agent.sim.start_vm("desk", ONE)
        agent.set("vgpudevices", ONE, {"enabled": False})
        agent.until(lambda: agent.condition("vgpudevices", ONE).get("reason") == "Held", "the refusal")
        assert "desk" in agent.condition("vgpudevices", ONE)["message"]
        agent.at_rest()
        assert agent.vgpus() == {ONE: "NVIDIA A2-4Q"}
        agent.sim.stop_vm("desk")
        agent.until(lambda: agent.vgpus() == {}, "it to go")
        agent.until(lambda: agent.ready("vgpudevices", ONE), "all well again")
