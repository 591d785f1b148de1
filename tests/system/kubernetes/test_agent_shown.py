"""The documents that agents publish about their nodes: soon, small, and without writes while nothing happens."""

from __future__ import annotations

import time

from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.node_document import NodeDocument
from support.agents import NAMESPACE, Agent, MakeAgent
from support.devicesagent import MakeDevices

MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def shown(agent: Agent, which: str = document.GPUS) -> NodeDocument | None:
    """Return the node's document, or None if there is none."""
    answer = agent.cluster.request("GET", f"{MAPS}/{document.map_name(agent.name, which)}")
    return document.decode(answer.body["data"][document.KEY]) if answer.status == 200 else None


def geometry(agent: Agent) -> list[list[str]]:
    found = shown(agent)
    gpus = found.inventory.gpus if found is not None else ()
    return [sorted(f"{i.profile}@{i.place.start}" for i in gpu.instances) for gpu in gpus]


def test_the_document_follows_the_gpus_and_goes_with_the_node(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb*2")
    agent.environment["POD_NAME"] = "some-pod"
    agent.start()
    agent.until(lambda: shown(agent), "a document")
    agent.request("all-1g.5gb")
    agent.until(lambda: geometry(agent) == agent.geometry(), "the document follows")
    found = shown(agent)
    assert found is not None
    assert (found.label, found.drift, found.pod, found.manages) == ("all-1g.5gb", (), f"{NAMESPACE}/some-pod", True)
    mounted = agent.deployed.environment()["DEFAULT_CONFIG_FILE"]
    assert [s.name for s in found.sources] == [f"ConfigMap {NAMESPACE}/{agent.name}-mig-config", mounted]
    made = agent.call("GET", f"{MAPS}/{agent.name}-gpus")["metadata"]
    assert [(o["kind"], o["name"], o["uid"]) for o in made["ownerReferences"]] == [
        ("Node", agent.name, agent.node()["metadata"]["uid"])
    ]
    assert made["labels"][document.LABEL] == document.GPUS


def test_an_idle_node_writes_nothing(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("times: {check-seconds: 5}")
    agent.start()
    agent.request("all-balanced")
    agent.until(lambda: (d := shown(agent)) is not None and d.label == "all-balanced", "the document follows")
    agent.until(lambda: geometry(agent) == agent.geometry(), "all of it")
    time.sleep(2.5)  # a pending one needs longer than the shortest pause between two writes
    version = agent.call("GET", f"{MAPS}/{agent.name}-gpus")["metadata"]["resourceVersion"]
    observations = agent.sim.calls()[-1]["seq"]
    agent.until(lambda: agent.sim.calls()[-1]["seq"] > observations, "another look")
    assert agent.call("GET", f"{MAPS}/{agent.name}-gpus")["metadata"]["resourceVersion"] == version


def test_gpus_that_are_not_read_any_more_are_reported_so_by_this_agent_and_the_next(only_standin: MakeAgent) -> None:
    agent = only_standin("a100-sxm4-40gb")
    agent.settings("times: {check-seconds: 5}")
    agent.start()
    agent.request("all-balanced")
    agent.until(lambda: geometry(agent) == agent.geometry(), "the document follows")

    def failure() -> str:
        found = shown(agent)
        assert found is not None
        return found.read_error

    agent.until(lambda: failure() == "", "all is well")
    agent.sim.inject_fault("fail", call="DeviceGetMigMode", code=999, calls=100_000)
    agent.until(failure, "a word about it")
    assert geometry(agent) == agent.geometry(), "as it was seen last"
    agent.sim.inject_fault("none")
    agent.until(lambda: failure() == "", "it is read again")
    agent.kill()
    agent.sim.inject_fault("fail", call="DeviceGetMigMode", code=999, calls=100_000)
    agent.start()
    agent.until(failure, "the next one sees nothing, and says so of what the former one saw")
    agent.sim.inject_fault("none")
    agent.until(lambda: failure() == "", "it is read again")


def test_a_config_of_its_own_is_found_by_the_label(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.request("all-1g.5gb")
    agent.configure(
        f"{agent.name}-own-config",
        {"config.yaml": "version: aliquot/v1\nconfigs:\n  own-1:\n  - gpus: all\n    mig: [3g.20gb@4]\n"},
    )
    agent.request("own-1")
    assert agent.geometry() == [["3g.20gb@4"]]
    assert agent.request("own-2", "failed", "UnknownConfig")["message"].startswith("no named config 'own-2'")


def test_the_devices_agent_publishes_too(make_devices: MakeDevices) -> None:
    agent = make_devices("a2")
    agent.start()
    agent.until(lambda: shown(agent, document.VGPUS), "a document")
    found = shown(agent, document.VGPUS)
    assert found is not None
    assert [gpu.product for gpu in found.inventory.gpus] == ["NVIDIA A2"]
    assert found.inventory.gpus[0].virtual is not None
