"""MIG-backed vGPUs through Harvester's objects: the mode, the layout, drift, a reboot, the option not to partition."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION, object_name
from support.devicesagent import DevicesAgent, MakeDevices

JSON = dict[str, Any]
A100 = "0000:01:00.0"
TEMPLATES = pytest.mark.parametrize("template", ["a100-sxm4-40gb:mdev", "h100-pcie:vfio"])


def begun(make: MakeDevices, template: str = "a100-sxm4-40gb:mdev") -> DevicesAgent:
    """Build a node whose GPU has virtual functions and MIG mode, and an empty MigConfiguration."""
    agent = make(template)
    agent.start()
    agent.until(lambda: agent.one("sriovgpudevices", A100), "the GPU's object")
    agent.set("sriovgpudevices", A100, {"enabled": True})
    agent.until(lambda: agent.one("migconfigurations", A100), "the MigConfiguration")
    agent.until(lambda: agent.all("vgpudevices"), "the functions")
    return agent


def ask(agent: DevicesAgent, enabled: bool = True, **requested: int) -> None:
    """Request profiles by short name (``p1g``: the first of that size), as the user interface saves them."""
    spec = agent.one("migconfigurations", A100)["spec"]
    wanted = {name.removeprefix("p"): n for name, n in requested.items()}
    rows = [{**row, "requested": wanted.pop(_short(row["name"]), 0)} for row in spec["profileSpec"]]
    assert not wanted, f"no profile {wanted} among {spec['profileSpec']}"
    agent.set("migconfigurations", A100, {"enabled": enabled, "profileSpec": rows})


def _short(name: str) -> str:
    text = name.removeprefix("MIG ")
    return "" if "+" in text else text.partition(".")[0]


def status(agent: DevicesAgent) -> JSON:
    found: JSON = agent.one("migconfigurations", A100).get("status", {})
    return found


def profiles(agent: DevicesAgent) -> list[str]:
    return sorted(i["profile"].partition(".")[0] for i in agent.sim.show()["gpus"][0]["instances"])


def backed(agent: DevicesAgent, function: str) -> str:
    """Return the first MIG-backed type that a function could carry."""
    agent.until(lambda: agent.status_of("vgpudevices", function).get("availableTypes"), "types")
    return str(sorted(agent.one("vgpudevices", function)["status"]["availableTypes"])[0])


@TEMPLATES
class TestFromAWholeGpuToMigBackedVgpusAndBack:
    def test_the_walk(self, make_devices: MakeDevices, template: str) -> None:
        agent = begun(make_devices, template)
        found = agent.one("migconfigurations", A100)
        assert found["spec"]["enabled"] is False
        assert {row["requested"] for row in found["spec"]["profileSpec"]} == {0}
        assert found["metadata"]["ownerReferences"][0]["kind"] == "SRIOVGPUDevice"
        assert agent.sim.show()["gpus"][0]["mig"]["current"] == "enabled"
        ask(agent, p3g=1, p1g=2)
        agent.until(lambda: status(agent).get("status") == "synced", "synced")
        assert profiles(agent) == ["1g", "1g", "3g"]
        made = {_short(row["name"]): row["vGPUID"] for row in status(agent)["profileStatus"] if row.get("vGPUID")}
        assert sorted((name, len(ids)) for name, ids in made.items()) == [("1g", 2), ("3g", 1)]
        assert all(isinstance(each, str) for ids in made.values() for each in ids)
        function = agent.one("sriovgpudevices", A100)["status"]["vfAddresses"][0]
        agent.carrying(function, backed(agent, function))
        ask(agent, enabled=False, p3g=1, p1g=2)
        agent.until(lambda: agent.condition("migconfigurations", A100)["status"] == "False", "a refusal while in use")
        agent.at_rest()
        assert profiles(agent) == ["1g", "1g", "3g"]
        agent.set("vgpudevices", function, {"enabled": False})
        agent.until(lambda: status(agent).get("status") == "disabled", "disabled")
        assert (profiles(agent), agent.vgpus()) == ([], {})
        agent.set("sriovgpudevices", A100, {"enabled": False})
        agent.until(lambda: agent.all("vgpudevices") == {} and agent.all("migconfigurations") == {}, "all to go")

    def test_a_reboot_is_undone_in_the_right_order(self, make_devices: MakeDevices, template: str) -> None:
        agent = begun(make_devices, template)
        ask(agent, p2g=1, p1g=1)
        agent.until(lambda: status(agent).get("status") == "synced", "synced")
        function = agent.one("sriovgpudevices", A100)["status"]["vfAddresses"][3]
        name = backed(agent, function)
        agent.carrying(function, name)
        agent.stop()
        agent.sim.reboot()
        assert profiles(agent) == []
        agent.start()
        agent.until(lambda: agent.vgpus() == {function: name}, "the vGPU again")
        assert profiles(agent) == ["1g", "2g"]
        agent.until(lambda: status(agent).get("status") == "synced", "synced again")
        agent.until(lambda: agent.configured(function) == name, "it is reported as configured")


class TestAUserChangesTheLayoutByHand:
    def test_it_is_listed_and_nothing_is_touched(self, make_devices: MakeDevices) -> None:
        agent = begun(make_devices)
        ask(agent, p3g=1, p1g=2)
        agent.until(lambda: status(agent).get("status") == "synced", "synced")
        gone = next(i for i in agent.sim.show()["gpus"][0]["instances"] if i["profile"].startswith("3g"))
        calls = len(agent.writes())
        agent.sim.destroy(0, gone["id"])
        agent.sim.create(0, "2g.10gb")
        by_hand = len(agent.writes()) - calls
        agent.until(lambda: status(agent).get("status") == "out-of-sync", "out-of-sync")
        agent.until(lambda: len(status(agent).get("differences", [])) >= 2, "both differences")
        message = " ".join(status(agent)["differences"])
        assert "3g.20gb" in message
        assert "2g.10gb" in message
        assert status(agent)["message"]
        agent.at_rest()
        assert len(agent.writes()) - calls == by_hand
        assert profiles(agent) == ["1g", "1g", "2g"]

    def test_disable_then_enable_builds_it_again_beside_what_is_not_ours(self, make_devices: MakeDevices) -> None:
        agent = begun(make_devices)
        ask(agent, p1g=2)
        agent.until(lambda: status(agent).get("status") == "synced", "synced")
        agent.sim.create(0, "2g.10gb")
        agent.until(lambda: status(agent).get("status") == "out-of-sync", "out-of-sync")
        ask(agent, enabled=False, p1g=2)
        agent.until(lambda: status(agent).get("status") == "disabled", "disabled")
        assert profiles(agent) == ["2g"], "instances of others are never destroyed without a request"
        ask(agent, p1g=1)
        agent.until(lambda: profiles(agent) == ["1g", "2g"], "the new layout beside it")

    def test_self_heal_is_a_choice(self, make_devices: MakeDevices) -> None:
        agent = begun(make_devices)
        ask(agent, p3g=1)
        agent.until(lambda: status(agent).get("status") == "synced", "synced")
        agent.set("migconfigurations", A100, {}, {"aliquot.dev/self-heal": "true"})
        agent.sim.destroy(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
        agent.until(lambda: profiles(agent) == ["3g"], "healed")
        agent.until(lambda: status(agent).get("status") == "synced", "synced again")


class TestALayoutThatCannotBe:
    def test_nothing_is_half_made_and_the_reason_is_reported(self, make_devices: MakeDevices) -> None:
        agent = begun(make_devices)
        ask(agent, p3g=2, p1g=1)
        agent.until(lambda: agent.condition("migconfigurations", A100).get("status") == "False", "the refusal")
        reported = agent.condition("migconfigurations", A100)
        assert reported["reason"].isalnum()
        assert "3g.20gb" in reported["message"]
        assert profiles(agent) == []

    def test_a_driver_that_refuses_half_way_leaves_nothing_behind(self, make_devices: MakeDevices) -> None:
        agent = begun(make_devices)
        agent.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, nth=2)
        ask(agent, p3g=1, p1g=2)
        agent.until(
            lambda: agent.condition("migconfigurations", A100).get("reason") == "HardwareRefused",
            "the driver's refusal",
        )
        assert profiles(agent) == []
        assert "the former state is back" in status(agent)["message"]
        agent.until(lambda: any(e["reason"] == "HardwareRefused" for e in agent.reported(A100)), "an event")
        agent.sim.inject_fault("none")
        agent.until(lambda: status(agent).get("status") == "synced", "another attempt")
        assert profiles(agent) == ["1g", "1g", "3g"]


class TestSkippingMig:
    def test_a_gpu_that_could_be_cut_stays_time_sliced(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a100-sxm4-40gb:mdev")
        agent.start()
        agent.until(lambda: agent.one("sriovgpudevices", A100), "the GPU's object")
        agent.set("sriovgpudevices", A100, {"enabled": True}, {SKIP_MIG_ANNOTATION: "true"})
        agent.until(lambda: agent.status_of("sriovgpudevices", A100).get("vfAddresses"), "the functions")
        function = agent.one("sriovgpudevices", A100)["status"]["vfAddresses"][0]
        agent.until(lambda: agent.status_of("vgpudevices", function).get("availableTypes"), "types")
        agent.carrying(function, "GRID A100X-4C")
        assert agent.all("migconfigurations") == {}
        assert agent.sim.show()["gpus"][0]["mig"]["current"] == "disabled"
        assert agent.one("sriovgpudevices", A100)["metadata"]["name"] == object_name(agent.name, A100)
