"""The agent that serves nvidia.com/vgpu.config in place of NVIDIA's vGPU device manager, on every vGPU framework."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
import yaml

from aliquot.kubernetes.gpu import names
from support.agents import NAMESPACE, Agent, MakeAgent
from support.deployed import VGPUS

PLUGIN, VALIDATOR = (f"{names.DEPLOY_PREFIX}sandbox-{each}" for each in ("device-plugin", "validator"))
NODE = {names.WORKLOAD_LABEL: "vm-vgpu", names.VGPU_DEPLOY_LABEL: "true", PLUGIN: "true", VALIDATOR: "true"}
FAST = "times: {check-seconds: 5, retry-first-seconds: 1, retry-longest-seconds: 1}"
CONFIG = """\
version: v1
vgpu-configs:
  two: [{devices: all, vgpu-devices: {L40S-8Q: 2}}]
  one: [{devices: all, vgpu-devices: {L40S-24Q: 1}}]
  fleet:
  - {devices: all, device-filter: "0x233010DE", vgpu-devices: {H100XM-40C: 2}}
  - {devices: all, device-filter: "0x26B910DE", vgpu-devices: {L40S-24Q: 2}}
  empty: [{devices: all, vgpu-devices: {}}]
"""


def vgpus(agent: Agent) -> list[dict[str, Any]]:
    return [each for gpu in agent.sim.show()["gpus"] for each in gpu["vgpus"]]


def types(agent: Agent) -> Counter[str]:
    return Counter(each["type"].rpartition(" ")[2] for each in vgpus(agent))


def writes(agent: Agent) -> int:
    return sum(bool(c.get("write") and not c.get("hand")) for c in agent.sim.calls())


def l40s(make: MakeAgent, **labels: str) -> Agent:
    """Return a node with an L40S and the named configs above."""
    agent = make("l40s:vfio", labels=NODE | labels, manifest=f"kubernetes/{VGPUS}")
    agent.settings(f"{FAST}\nvgpu: {{config-map: vgpus}}")
    agent.configure("vgpus", {"config.yaml": CONFIG})
    return agent


def test_operands_are_paused_for_a_change_and_restored(make_agent: MakeAgent) -> None:
    agent = l40s(make_agent)
    agent.patch({"metadata": {"labels": {VALIDATOR: "false"}}})
    containers = [{"name": "c", "image": "x"}]
    meta = {"name": "sandbox", "labels": {"app": "nvidia-sandbox-device-plugin-daemonset"}}
    agent.create("pods", {"metadata": meta, "spec": {"nodeName": agent.name, "containers": containers}}, NAMESPACE)
    agent.start()
    agent.label(config="two")
    agent.reaches("pending", "two")
    agent.until(lambda: "sandbox" in agent.status()["message"], "the pod that is waited for")
    assert (agent.deploy()[PLUGIN], agent.deploy()[VALIDATOR]) == ("paused-for-vgpu-change", "false")
    assert types(agent) == {}
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/sandbox?gracePeriodSeconds=0")
    assert agent.reaches("success", "two")["reason"] == "Applied"
    assert types(agent) == {"L40S-8Q": 2}
    assert (agent.deploy()[PLUGIN], agent.deploy()[VALIDATOR]) == ("true", "false")
    assert agent.labels()["nvidia.com/vgpu.config.state"] == "success"
    assert not [name for name in agent.labels() if name.startswith("nvidia.com/mig.")], "these are GFD's and MIG's"
    agent.until(lambda: {"Changing", "Applied"} <= {each["reason"] for each in agent.events()}, "events")
    assert agent.request("fleet")["reason"] == "Applied"
    assert types(agent) == {"L40S-24Q": 2}
    assert agent.request("empty")["reason"] == "Applied"
    assert types(agent) == {}
    assert "Selected vGPU device configuration successfully applied" in agent.log()


@pytest.mark.parametrize(
    ("template", "label", "count"),
    [
        ("tesla-t4:mdev", "T4-8Q", 2),
        ("a2:mdev", "A2-8Q", 2),
        ("l40s:vfio*2", "L40S-24Q", 4),
        ("h100-80gb-hbm3:vfio", "H100XM-3-40C", 2),
    ],
)
def test_generated_configs_have_the_names_of_types(
    template: str, label: str, count: int, only_standin: MakeAgent
) -> None:
    agent = only_standin(template, labels=NODE, manifest=f"kubernetes/{VGPUS}")
    agent.start()
    assert agent.request(label)["reason"] == "Applied"
    assert types(agent) == {label: count}
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{agent.name}-vgpu-config"
    configs = yaml.safe_load(agent.call("GET", path)["data"]["config.yaml"])["vgpu-configs"]
    assert configs[label] == [{"devices": "all", "vgpu-devices": {label: count // agent_gpus(agent)}}]
    assert agent.request("A2-99Q", "failed", "UnknownConfig")["message"].startswith("no named config 'A2-99Q'")
    assert types(agent) == {label: count}


def agent_gpus(agent: Agent) -> int:
    return len(agent.sim.show()["gpus"])


def test_a_vgpu_of_a_vm_is_refused_by_name_until_the_vm_is_gone(only_standin: MakeAgent) -> None:
    agent = l40s(only_standin)
    agent.start()
    agent.request("two")
    before, done = vgpus(agent), writes(agent)
    agent.sim.start_vm("desktop", before[0]["function"])
    refused = agent.request("one", "failed", "Held")
    assert "desktop" in refused["message"]
    assert refused["nextStep"] == f"kubectl exec -n {NAMESPACE} aliquot-vgpus-{agent.name} -- aliquot show"
    assert (vgpus(agent), writes(agent)) == (before, done)
    assert (agent.deploy()[PLUGIN], agent.deploy()[VALIDATOR]) == ("true", "true"), "nothing stays paused"
    agent.sim.stop_vm("desktop")
    assert agent.reaches("success", "one")["reason"] == "Applied"
    assert types(agent) == {"L40S-24Q": 1}


def test_what_drifts_is_healed_and_what_fails_is_undone(only_standin: MakeAgent) -> None:
    agent = l40s(only_standin)
    agent.start()
    agent.request("two")
    lost, kept = vgpus(agent)
    assert agent.sim.files("write", f"/sys/bus/pci/devices/{lost['function']}/nvidia/current_vgpu_type", "0")[1] == 0
    agent.until(lambda: types(agent) == {"L40S-8Q": 2}, "healed")
    agent.reaches("success", "two", "Healed")
    assert kept in vgpus(agent)
    agent.sim.inject_fault("fail", call="SysfsWrite", code=errno.EIO, path="current_vgpu_type", nth=3, calls=1)
    failed = agent.request("one", "failed", "ApplyFailed")
    assert failed["message"].endswith("the former state is back")
    agent.sim.inject_fault("none")
    assert agent.reaches("success", "one")["reason"] == "Applied"
    assert agent.deploy()[PLUGIN] == "true"


def test_a_node_without_the_label_gets_the_default_and_a_misspelt_label_is_reported(only_standin: MakeAgent) -> None:
    agent = l40s(only_standin)
    agent.environment["DEFAULT_VGPU_CONFIG"] = "fleet"
    agent.start()
    agent.reaches("success", "fleet", "Applied")
    assert types(agent) == {"L40S-24Q": 2}
    agent.stop()
    other = l40s(only_standin, **{"nvidia.com/vgpu.confg": "two"})
    other.start()
    other.until(lambda: "did you mean nvidia.com/vgpu.config?" in other.status().get("message", ""), "the hint")
    assert types(other) == {}
