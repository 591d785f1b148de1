"""The controller against an API server, with only the rights of its manifests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from aliquot.core.config import settings_text
from aliquot.core.config.settings import AgentSettings, merge
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.leader_election import LeaseTiming
from aliquot.kubernetes.client.objects import ClusterPolicy, KubeObject
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.controller.controller import Controller, ControllerPace
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.label_agent.controller.effective_settings import NOTES_KEY
from support.cluster import Cluster
from system.kubernetes.agent_rights import CONTROLLER, CRDS, MAPS, NS, manifests

QUICK = ControllerPace(
    LeaseTiming(lease_s=3, renew_s=2, retry_s=0.2), WatchTiming(refused_s=0.3, first_backoff_s=0.1), patience_s=0.5
)
A100 = {names.PRODUCT_LABEL: "NVIDIA-A100-SXM4-40GB"}
KINDS = {"nvidia.com": "ClusterPolicy", "devices.harvesterhci.io": "SRIOVGPUDevice"}
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
DEVICES = "/apis/devices.harvesterhci.io/v1beta1/sriovgpudevices"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases/aliquot-controller"


def definition(group: str) -> dict[str, Any]:
    version, plural = CRDS[group]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": KINDS[group], "plural": plural, "singular": plural[:-1]},
            "scope": "Cluster",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


class Bed:
    """A cluster with the manifests, and short methods for the actions of a test."""

    def __init__(self, cluster: Cluster, *groups: str) -> None:
        self.cluster = cluster
        cluster.apply(manifests())
        for group in groups:
            self.define(group)
        self.config = cluster.kubeconfig(NS, CONTROLLER)

    def define(self, group: str) -> None:
        version, plural = CRDS[group]
        self.cluster.apply(definition(group))
        self.cluster.wait(lambda: self.cluster.request("GET", f"/apis/{group}/{version}/{plural}").status == 200, group)

    def node(self, name: str, labels: dict[str, str]) -> None:
        labels = {"kubernetes.io/hostname": name} | labels
        self.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})

    def meta(self, node: str) -> Any:
        return self.cluster.get(f"/api/v1/nodes/{node}")["metadata"]

    def labels(self, node: str) -> dict[str, str]:
        found = self.meta(node)["labels"]
        return {k: v for k, v in found.items() if k in (names.DEPLOY_LABEL, names.CONFIG_LABEL)}

    def policy(self, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "cluster-policy"}}
        if self.cluster.request("GET", f"{POLICIES}/cluster-policy").status == 404:
            self.cluster.must("POST", POLICIES, body | {"spec": spec})
        else:
            self.cluster.must("PATCH", f"{POLICIES}/cluster-policy", {"spec": spec})

    def device(self, name: str, address: str, node: str, enabled: bool) -> None:
        body = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "SRIOVGPUDevice", "metadata": {"name": name}}
        spec = {"address": address, "nodeName": node, "enabled": enabled}
        if self.cluster.request("GET", f"{DEVICES}/{name}").status == 404:
            self.cluster.must("POST", DEVICES, body | {"spec": spec})
        else:
            self.cluster.must("PATCH", f"{DEVICES}/{name}", {"spec": spec})

    def settings(self, text: str) -> None:
        self.cluster.must("PATCH", f"{MAPS}/{names.SETTINGS_MAP}", {"data": {names.SETTINGS_KEY: text}})

    def effective(self) -> dict[str, str]:
        """Return the data of the effective ConfigMap, empty if there is none."""
        answer = self.cluster.request("GET", f"{MAPS}/{names.EFFECTIVE_MAP}")
        data: dict[str, str] = answer.body.get("data", {}) if answer.status == 200 else {}
        return data

    def value(self) -> AgentSettings:
        return merge((settings_text.read(self.effective().get(names.SETTINGS_KEY, ""), "f"),))

    @asynccontextmanager
    async def controller(self, identity: str = "one") -> AsyncIterator[Controller]:
        async with Api.connect(str(self.config), namespace=NS) as api:
            controller = Controller(api, identity=identity, pace=QUICK)
            task = asyncio.create_task(controller.run())
            try:
                yield controller
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def until(check: Callable[[], Any], what: str, timeout_s: float = 15) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    while not check():
        assert loop.time() < end, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.05)


async def settled(controller: Controller) -> int:
    """Return how many writes there were, once they have ended."""
    before = -1
    while before != controller.metrics.written:
        before = controller.metrics.written
        await asyncio.sleep(1)
    return before


def play(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(90):
            await story

    asyncio.run(bounded())


def test_new_nodes_get_the_agent_and_a_first_request_and_an_idle_cluster_no_writes(cluster: Cluster) -> None:
    bed = Bed(cluster)
    bed.node("gpu-1", A100)
    bed.node("cpu-1", {})
    bed.node("off", A100 | {names.DEPLOY_LABEL: "false"})

    async def story() -> None:
        async with bed.controller() as controller:
            both = {names.DEPLOY_LABEL: "true", names.CONFIG_LABEL: "all-disabled"}
            await until(lambda: bed.labels("gpu-1") == both, "the labels of the first node")
            bed.node("gpu-2", {"feature.node.kubernetes.io/pci-10de.present": "true"})
            await until(lambda: bed.labels("gpu-2") == {names.DEPLOY_LABEL: "true"}, "the labels of a new node")
            bed.cluster.must("PATCH", "/api/v1/nodes/gpu-2", {"metadata": {"labels": {names.CAPABLE_LABEL: "true"}}})
            await until(lambda: bed.labels("gpu-2") == both, "the request of a node that turned out to be capable")
            written = await settled(controller)
            assert written == 3
            versions = {name: bed.meta(name)["resourceVersion"] for name in ("gpu-1", "gpu-2", "cpu-1", "off")}
            for name in versions:
                bed.cluster.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}})
            versions = {name: bed.meta(name)["resourceVersion"] for name in versions}
            assert await settled(controller) == written
            assert {name: bed.meta(name)["resourceVersion"] for name in versions} == versions
            assert bed.labels("cpu-1") == {}
            assert bed.labels("off") == {names.DEPLOY_LABEL: "false"}
            assert bed.effective() == {}
            assert controller.pages["/readyz"]({}).status == 200
            assert b'aliquot_controller_writes_total{what="node"} 3.0' in controller.pages["/metrics"]({}).body

    play(story())


def test_cluster_policy_reaches_the_effective_settings(cluster: Cluster) -> None:
    bed = Bed(cluster, "nvidia.com")
    bed.node("gpu-1", A100)
    bed.policy({"mig": {"strategy": "single"}})

    async def story() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.effective() and bed.value().strategy == "single", "the first settings")
            bed.cluster.kubectl(
                "patch", "clusterpolicies.nvidia.com/cluster-policy", "--type=json",
                '-p=[{"op":"replace", "path":"/spec/mig/strategy", "value":"mixed"}]',
            )  # fmt: skip
            await until(lambda: bed.value().strategy == "mixed", "the strategy")
            bed.policy({"migManager": {"config": {"name": "custom-mig-config", "default": ""}}})
            await until(lambda: bed.value().config_map == "custom-mig-config", "the custom configs")
            bed.policy({"mig": {"strategy": "mixd"}})
            await until(lambda: "mixd" in bed.effective().get(NOTES_KEY, ""), "the note")
            assert bed.value().config_map == "custom-mig-config"
            await settled(controller)
            bed.cluster.must("PATCH", f"{MAPS}/{names.EFFECTIVE_MAP}", {"data": {names.SETTINGS_KEY: "x", "y": "z"}})
            await until(lambda: "y" not in bed.effective(), "an edit by hand to be undone")
            assert bed.value().config_map == "custom-mig-config"
            bed.cluster.must("DELETE", f"{POLICIES}/cluster-policy")
            await until(lambda: bed.value() == AgentSettings(), "the settings to go with ClusterPolicy")
            assert NOTES_KEY not in bed.effective()

    play(story())


def test_the_operators_mig_manager_keeps_its_labels(cluster: Cluster) -> None:
    bed = Bed(cluster, "nvidia.com")
    bed.policy({"migManager": {"enabled": True}, "devicePlugin": {"enabled": True}, "gfd": {"enabled": False}})
    bed.node("gpu-1", A100)

    async def story() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.effective() and not bed.value().device_plugin, "the settings")
            assert bed.value().labels
            await settled(controller)
            assert bed.labels("gpu-1") == {}
            bed.policy({"migManager": {"enabled": False}})
            await until(lambda: len(bed.labels("gpu-1")) == 2, "the labels, once the operator leaves them to us")

    play(story())


def test_the_settings_map_says_which_request_comes_first_and_a_fault_in_it_changes_nothing(cluster: Cluster) -> None:
    bed = Bed(cluster)
    bed.settings('version: aliquot/v1\nmig: {default-config: ""}')
    bed.node("gpu-1", A100)

    async def story() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.labels("gpu-1"), "the deploy label")
            await settled(controller)
            assert bed.labels("gpu-1") == {names.DEPLOY_LABEL: "true"}
            bed.settings("version: aliquot/v1\nmig: {default-confg: all-disabled}")
            await until(lambda: "default-confg" in bed.effective().get(NOTES_KEY, ""), "the fault")
            await settled(controller)
            assert bed.labels("gpu-1") == {names.DEPLOY_LABEL: "true"}
            bed.settings("version: aliquot/v1\n")
            await until(lambda: len(bed.labels("gpu-1")) == 2, "the first request")

    play(story())


def test_gpus_of_virtual_machines_are_passed_on_and_given_back(cluster: Cluster) -> None:
    bed = Bed(cluster, "devices.harvesterhci.io")
    bed.node("gpu-1", A100)
    bed.device("a", "0000:08:00.0", "gpu-1", True)
    bed.device("b", "0000:09:00.0", "gpu-1", False)

    def reported() -> str | None:
        found: str | None = bed.meta("gpu-1").get("annotations", {}).get(names.RESERVED_ANNOTATION)
        return found

    async def story() -> None:
        async with bed.controller():
            await until(lambda: reported() == "0000:08:00.0", "the first address")
            bed.device("b", "0000:09:00.0", "gpu-1", True)
            await until(lambda: reported() == "0000:08:00.0,0000:09:00.0", "both addresses")
            bed.device("a", "0000:08:00.0", "gpu-1", False)
            bed.cluster.must("DELETE", f"{DEVICES}/b")
            await until(lambda: reported() is None, "the annotation to go")

    play(story())


def test_kinds_may_come_later_and_go(cluster: Cluster) -> None:
    bed = Bed(cluster)
    bed.node("gpu-1", A100)

    async def story() -> None:
        async with bed.controller() as controller:
            await until(lambda: bed.labels("gpu-1"), "work without the kinds")
            assert controller.synced
            bed.define("nvidia.com")
            bed.policy({"mig": {"strategy": "mixed"}})
            await until(lambda: bed.value().strategy == "mixed", "a kind that came later")

    play(story())


def test_one_of_two_works_and_the_other_takes_over(cluster: Cluster) -> None:
    bed = Bed(cluster)

    async def story() -> None:
        async with bed.controller("two") as second:
            async with bed.controller("one") as first:
                await until(lambda: first.leader.is_leader or second.leader.is_leader, "a leader")
                leader, other = (first, second) if first.leader.is_leader else (second, first)
                bed.node("gpu-1", A100)
                await until(lambda: bed.labels("gpu-1"), "the leader's work")
                await asyncio.sleep(1)
                assert (leader.metrics.written, other.metrics.written) == (1, 0)
                assert bed.cluster.get(LEASE)["spec"]["holderIdentity"] == leader.leader.identity
            await until(lambda: second.leader.is_leader, "the other to take over")
            bed.node("gpu-2", A100)
            await until(lambda: bed.labels("gpu-2"), "its work")

    play(story())


def test_it_survives_an_api_server_that_disappears(cluster: Cluster) -> None:
    bed = Bed(cluster)

    async def story() -> None:
        async with bed.controller() as controller:
            await until(lambda: controller.leader.is_leader and controller.synced, "the start")
            with bed.cluster.unavailable():
                await until(lambda: controller.pages["/readyz"]({}).status == 503, "it to say that the server is away")
            await until(lambda: bed.cluster.request("GET", "/readyz").status == 200, "the server", 30)
            bed.node("gpu-1", A100)
            await until(lambda: bed.labels("gpu-1"), "work afterwards", 30)

    play(story())


@pytest.mark.parametrize("kind", [ClusterPolicy, SRIOVGPUDevice])
def test_the_definitions_of_this_test_are_those_of_the_product(kind: type[KubeObject]) -> None:
    # A path that is misspelled in both would find nothing and pass.
    (group,) = [g for g, k in KINDS.items() if k == kind.__name__]
    type_ = kind.TYPE
    version, plural = CRDS[group]
    assert (type_.group, type_.version, type_.plural, type_.namespaced) == (group, version, plural, False)
    assert yaml.safe_load(yaml.safe_dump(definition(group)))["spec"]["names"]["kind"] == kind.__name__
