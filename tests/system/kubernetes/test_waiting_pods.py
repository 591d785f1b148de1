"""The owner of a pod that waits because of a nearly correct name sees the reason in kubectl describe."""

from __future__ import annotations

import asyncio
from typing import Any

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.label_agent.controller.pending_pods import COMPONENT, REASON
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, held_by_pods
from support.cluster import Cluster
from support.factory import inventory, with_instances
from system.kubernetes.test_controller import A100, Bed, play, settled, until

MISSPELT = {names.PRODUCT_LABEL: "A100-SXM4-40GB"}
SENTENCE = f"node selector {names.PRODUCT_LABEL}=A100-SXM4-40GB matches no node: did you mean NVIDIA-A100-SXM4-40GB?"
LARGE = "nvidia.com/mig-3g.20gb"


class Team(Bed):
    """A cluster with one GPU node and a user's namespace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        cluster.namespace("team")
        self.node("gpu-1", A100 | {names.STRATEGY_LABEL: "mixed"})

    def pod(self, name: str, *, resource: str = "", **spec: Any) -> None:
        limits = {"resources": {"limits": {resource: "1"}}} if resource else {}
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "c"} | limits]} | spec}
        self.cluster.must("POST", "/api/v1/namespaces/team/pods", body)

    def events(self, pod: str) -> list[dict[str, Any]]:
        found = self.cluster.get("/api/v1/namespaces/team/events")["items"]
        return [each for each in found if each["involvedObject"]["name"] == pod]


def test_kubectl_describe_says_what_to_request_and_other_pods_are_left_alone(cluster: Cluster) -> None:
    team = Team(cluster)
    team.pod("early", nodeSelector=MISSPELT)

    async def story() -> None:
        async with team.controller() as controller:
            await until(lambda: team.events("early"), "the event of a pod that was there before")
            team.pod("late", nodeSelector=MISSPELT)
            team.pod("right", nodeSelector=A100)
            team.pod("plain", resource="nvidia.com/gpu")
            team.pod("bound", nodeSelector=MISSPELT, nodeName="gpu-1")
            team.pod("other", nodeSelector={names.PRODUCT_LABEL: "NVIDIA-A30"})
            await until(lambda: team.events("late"), "the event of a pod that came")
            await settled(controller)
            described = await asyncio.to_thread(cluster.kubectl, "describe", "pod", "late", "-n", "team")
            assert SENTENCE in described
            assert f"{COMPONENT}  {SENTENCE}" in described
            (event,) = team.events("late")
            assert (event["type"], event["reason"], event["reportingComponent"]) == ("Warning", REASON, COMPONENT)
            assert not [each for name in ("right", "plain", "bound", "other") for each in team.events(name)]

    play(story())


def test_each_pod_gets_one_event_whatever_leads_and_an_idle_cluster_is_asked_nothing(cluster: Cluster) -> None:
    team = Team(cluster)
    team.pod("p", nodeSelector=MISSPELT)

    async def story() -> None:
        async with team.controller("one") as first:
            await until(lambda: team.events("p"), "the event")
            await settled(first)
            before = dict(first.api.requests)
            team.node("gpu-2", A100)  # another observation
            await until(lambda: team.labels("gpu-2"), "the work on the new node")
            await asyncio.sleep(2)
            used = {key: n - before.get(key, 0) for key, n in first.api.requests.items() if n > before.get(key, 0)}
            assert not {"pods", "events"} & {resource for _, resource in used}
        async with team.controller("two") as second:
            tries = ("create", "events")
            await until(lambda: second.api.requests.get(tries), "the next leader's try", 30)
            await settled(second)
            assert second.api.requests[tries] == 1
        assert len(team.events("p")) == 1

    play(story())


def test_a_pod_hears_which_node_could_offer_its_profile(cluster: Cluster) -> None:
    team = Team(cluster)

    async def story() -> None:
        async with team.controller():
            await until(lambda: len(team.labels("gpu-1")) == 2, "the agent's label")
            team.pod("p", resource=LARGE)
            await until(lambda: team.events("p"), "the event")
            command = f"kubectl label node gpu-1 {names.CONFIG_LABEL}=all-3g.20gb --overwrite"
            (event,) = team.events("p")
            assert event["message"] == f"no node offers {LARGE} now; gpu-1 can: {command}"
            await asyncio.to_thread(cluster.kubectl, *command.split()[1:])
            team.pod("q", resource=LARGE)
            await asyncio.sleep(2)
            assert team.events("q") == []

    play(story())


def test_a_node_whose_instances_are_held_is_not_proposed(cluster: Cluster) -> None:
    # The agent's document reports the holders of its GPUs.
    team = Team(cluster)
    there = with_instances(inventory("a100-sxm4-40gb", enabled=True), 0, "1g.5gb@0")
    used = held_by_pods(there, [PodDeviceUse("team", "train", "main", (there.gpus[0].uuid,))])
    data = {documents.KEY: documents.encode(documents.NodeDocument(used))}
    meta = {"name": documents.map_name("gpu-1", documents.GPUS)}
    cluster.must("POST", "/api/v1/namespaces/gpu-operator/configmaps", {"metadata": meta, "data": data})

    async def story() -> None:
        async with team.controller():
            await until(lambda: len(team.labels("gpu-1")) == 2, "the agent's label")
            team.pod("p", resource=LARGE)
            await until(lambda: team.events("p"), "the event")
            (event,) = team.events("p")
            assert event["message"] == f"no node offers {LARGE} now; gpu-1 could, but its GPUs are in use"

    play(story())


def test_it_can_be_switched_off_and_on(cluster: Cluster) -> None:
    team = Team(cluster)
    team.settings("version: aliquot/v1\nhints: {enabled: false}")
    team.pod("p", nodeSelector=MISSPELT)

    async def story() -> None:
        async with team.controller() as controller:
            await until(lambda: team.labels("gpu-1"), "the other work")
            await settled(controller)
            assert team.events("p") == []
            assert not [resource for _, resource in controller.api.requests if resource == "pods"]
            team.settings("version: aliquot/v1\n")
            await until(lambda: team.events("p"), "the event, once it is on")
            team.settings("version: aliquot/v1\nhints: {enabled: false}")
            await asyncio.sleep(1)
            team.pod("q", nodeSelector=MISSPELT)
            await asyncio.sleep(2)
            assert team.events("q") == []

    play(story())
