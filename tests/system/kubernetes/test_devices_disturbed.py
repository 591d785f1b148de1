"""The devices agent with missing, conflicting or foreign objects and devices."""

from __future__ import annotations

import copy
import re
from typing import Any

from aliquot.kubernetes.gpu.node_document import VGPUS
from aliquot.kubernetes.kinds.harvester_names import DRIVER_NEEDED_LABEL, object_name
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from support.cluster import Cluster, StandinCluster
from support.controllers import run
from support.devicesagent import API, DevicesAgent, MakeDevices, install
from system.kubernetes.test_agent_shown import shown

A2 = "0000:01:00.0"
ONE, TWO = "0000:01:00.4", "0000:01:00.5"
DRIVERS = "harvester-system"


def pod(agent: DevicesAgent, name: str, labels: dict[str, str], namespace: str = DRIVERS) -> None:
    """Create a running pod of this node."""
    agent.cluster.namespace(namespace)
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": agent.name,
            "containers": [{"name": "main", "image": "x"}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    agent.create("pods", body, namespace)
    run(agent.cluster, namespace, name)


def gone(agent: DevicesAgent, name: str, namespace: str = DRIVERS) -> None:
    agent.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


class TestWhilePcidevicesWorks:
    def test_nothing_is_written_and_it_says_why_until_that_is_gone(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.aliquot("apply", "--gpu", "0", "--vgpu", "A2-4Q")
        pod(agent, "pcidevices-x", {"app.kubernetes.io/name": "harvester-pcidevices-controller"})
        calls = len(agent.writes())
        agent.start()
        agent.until(lambda: agent.standing().get("state") == "idle", "idle")
        assert agent.standing()["reason"] == "PcidevicesRuns"
        assert "pcidevices-x" in agent.standing()["sentence"]
        agent.until(lambda: any(e["reason"] == "PcidevicesRuns" for e in agent.events()), "a node event")
        agent.until(lambda: agent.page("/readyz")[0] == 200, "readiness")
        assert agent.page("/readyz")[1].startswith("idle: Harvester's pcidevices")
        assert agent.versions() == {}
        assert DRIVER_NEEDED_LABEL not in agent.labels()
        gone(agent, "pcidevices-x")
        agent.until(lambda: agent.configured(ONE) == "NVIDIA A2-4Q", "the living vGPU to be adopted")
        agent.until(lambda: agent.standing()["state"] == "working", "working")
        assert len(agent.writes()) == calls

    def test_it_comes_back_and_the_agent_steps_aside(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        agent.until(lambda: (found := shown(agent, VGPUS)) and not found.read_error, "what it sees is shown")
        pod(agent, "pcidevices-x", {"app.kubernetes.io/name": "pcidevices"})
        agent.until(lambda: agent.standing().get("state") == "idle", "idle")
        agent.until(lambda: (found := shown(agent, VGPUS)) and "pcidevices-x" in found.read_error, "that it is old now")
        agent.set("vgpudevices", ONE, {"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"})
        agent.at_rest()
        assert agent.vgpus() == {}


class TestAClusterWithoutTheKinds:
    def test_it_says_what_to_apply_and_begins_by_itself(self, cluster: Cluster, make_devices: MakeDevices) -> None:
        for definition in crds.definitions():
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            cluster.must("DELETE", f"{path}/{definition['metadata']['name']}")
        cluster.wait(lambda: cluster.request("GET", f"{API}/vgpudevices").status == 404, "the kinds to go")
        agent = make_devices("a2:mdev")
        agent.start()
        agent.until(lambda: agent.standing().get("reason") == "NoCustomResources", "idle")
        assert "kubectl apply -f deploy/crds" in agent.standing()["sentence"]
        install(cluster)
        agent.until(lambda: agent.one("sriovgpudevices", A2), "the GPU's object", 60)
        agent.until(lambda: agent.standing().get("state") == "working", "working")


class TestAnApiServerThatDisappears:
    def test_what_was_requested_meanwhile_is_done_afterwards(self, cluster: Cluster, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        with cluster.unavailable():
            agent.until(lambda: agent.page("/readyz")[0] == 503, "no longer ready")
            assert agent.page("/healthz")[0] == 200
        agent.carrying(ONE)
        agent.until(lambda: agent.page("/readyz")[0] == 200, "ready again")


class TestOneBadGpu:
    def test_the_other_goes_on(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev*2")
        second = agent.sim.show()["gpus"][1]["pci"]
        agent.start()
        agent.until(lambda: len(agent.all("sriovgpudevices")) == 2, "both GPUs")
        agent.sim.inject_fault("unbind-lock", gpu=0, calls=1000)
        agent.set("sriovgpudevices", A2, {"enabled": True})
        agent.until(lambda: agent.condition("sriovgpudevices", A2).get("status") == "False", "the failure", 90)
        agent.set("sriovgpudevices", second, {"enabled": True})
        agent.until(lambda: len(agent.all("vgpudevices")) == 16, "the other's functions", 90)
        agent.sim.inject_fault("none")
        agent.until(lambda: len(agent.all("vgpudevices")) == 32, "the first one's, too", 90)
        agent.until(lambda: agent.ready("sriovgpudevices", A2), "ready")


class TestObjectsThatAUserEdited:
    def test_a_deleted_object_is_made_again_and_the_vgpu_lives_on(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE)
        uuid = agent.sim.show()["gpus"][0]["vgpus"][0]["uuid"]
        agent.call("DELETE", f"{API}/vgpudevices/{object_name(agent.name, ONE)}")
        agent.until(lambda: agent.configured(ONE) == "NVIDIA A2-4Q", "the object again")
        assert agent.one("vgpudevices", ONE)["spec"]["enabled"]
        assert [v["uuid"] for v in agent.sim.show()["gpus"][0]["vgpus"]] == [uuid]

    def test_a_lost_label_is_put_back(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.until(lambda: agent.one("sriovgpudevices", A2), "the object")
        path = f"{API}/sriovgpudevices/{object_name(agent.name, A2)}"
        agent.call("PATCH", path, {"metadata": {"labels": None}}, "application/merge-patch+json")
        agent.until(lambda: agent.one("sriovgpudevices", A2)["metadata"].get("labels"), "its label")

    def test_an_overwritten_status_is_put_right(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        agent.at_rest()
        path = f"{API}/sriovgpudevices/{object_name(agent.name, A2)}/status"
        agent.call("PATCH", path, {"status": {"vfAddresses": ["0000:ff:00.0"]}}, "application/merge-patch+json")
        agent.until(lambda: len(agent.status_of("sriovgpudevices", A2).get("vfAddresses", ())) == 16, "the truth")

    def test_another_nodes_object_is_left_alone(self, make_devices: MakeDevices) -> None:
        # Two nodes, one cluster: each agent changes its own objects, though addresses are the same.
        one, two = make_devices("a2:mdev"), make_devices("a2:vfio")
        one.start()
        two.start()
        one.enabled(A2)
        two.until(lambda: two.ready("sriovgpudevices", A2), "the other's object")
        assert two.all("vgpudevices") == {}
        two.enabled(A2)
        two.carrying(ONE)
        assert (one.vgpus(), two.vgpus()) == ({}, {ONE: "NVIDIA A2-4Q"})
        one.stop()
        before = one.everything()
        two.set("vgpudevices", ONE, {"enabled": False})
        two.until(lambda: two.vgpus() == {}, "it to go")
        assert one.everything() == before


class TestVirtualFunctionsSwitchedOnByHand:
    def test_they_are_seen_and_adopted(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.aliquot("vgpu", "enable", "0")
        agent.start()
        agent.until(lambda: len(agent.all("vgpudevices")) == 16, "their objects")
        assert agent.one("sriovgpudevices", A2)["spec"]["enabled"]


def test_its_figures_are_served(standin_cluster: StandinCluster, devices_on_standin: MakeDevices) -> None:
    agent = devices_on_standin("a2:mdev")
    agent.start()
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.at_rest(1)
    page = agent.page("/metrics")[1]
    assert re.search(rf'aliquot_devices_vgpus{{node="{agent.name}",type="NVIDIA A2-4Q"}} 1.0', page)
    assert re.search(r'aliquot_devices_applies_total{.*outcome="done"} [12].0', page)
    assert f'aliquot_devices_state{{node="{agent.name}",state="working"}} 1.0' in page


class TestDefinitionsThatPcidevicesWroteOverOurs:
    def test_what_they_drop_is_reported_and_not_written_for_ever(
        self, cluster: Cluster, make_devices: MakeDevices
    ) -> None:
        # Their start installs their own definitions: without conditions, and unknown fields are pruned.
        theirs = [_without_ours(definition) for definition in crds.definitions()]
        for body in theirs:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}"
            cluster.must("DELETE", path)
        cluster.wait(lambda: cluster.request("GET", f"{API}/vgpudevices").status == 404, "ours to go")
        cluster.apply(theirs)
        cluster.wait(lambda: cluster.request("GET", f"{API}/vgpudevices").status == 200, "theirs")
        agent = make_devices("a2:mdev")
        agent.start()
        agent.enabled(A2)
        agent.carrying(ONE)
        agent.until(lambda: "--force-conflicts -f deploy/crds" in agent.page("/readyz")[1], "what to type")
        assert "conditions" not in agent.one("sriovgpudevices", A2)["status"]
        agent.at_rest(1)
        before, observations = _requests(agent), agent.observations()
        agent.until(lambda: agent.observations() >= observations + 5, "five looks")
        assert _requests(agent) - before <= 5, "one per kind, to see whether they are ours again"


def _without_ours(definition: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(definition)
    for version in body["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        status.pop("x-kubernetes-preserve-unknown-fields", None)
        for name in ("conditions", "observedGeneration", "appliedBoot", "differences"):
            status["properties"].pop(name, None)
    return body


def _requests(agent: DevicesAgent) -> int:
    """Return how many statuses the agent has written so far."""
    page = agent.page("/metrics")[1]
    return sum(
        int(float(n)) for n in re.findall(r'^aliquot_devices_writes_total{[^}]*verb="status"[^}]*} (\S+)$', page, re.M)
    )
