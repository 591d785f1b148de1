"""The agent's behaviour when the API server is unavailable, others write at the same time, objects vanish or rights are
missing.

Everything is correct as soon as the disturbance is over.
"""

from __future__ import annotations

import copy
import time

import pytest

from aliquot.kubernetes.gpu import names
from support.agents import DEPLOY, NAMESPACE, Agent, MakeAgent
from support.cluster import Cluster, StandinCluster
from system.kubernetes.disturb import hammer, probe, unavailable_at

TEXT = """version: v1
mig-configs:
  one:
  - devices: all
    mig-enabled: true
    mig-devices: {3g.20gb: 1, 1g.5gb: 1}
  two:
  - devices: all
    mig-enabled: true
    mig-devices: {3g.20gb: 1, 2g.10gb: 1}
"""
ONE, TWO = ["1g.5gb", "3g.20gb"], ["2g.10gb", "3g.20gb"]
PLUGIN = f"{names.DEPLOY_PREFIX}device-plugin"


def settings(agent: Agent, more: str = "") -> None:
    agent.configure("custom", {"config.yaml": TEXT})
    agent.settings("mig: {strategy: mixed, config-map: custom}\n" + more)


def at_one(agent: Agent, more: str = "") -> Agent:
    """Return the agent at rest, with its node at config one."""
    settings(agent, more)
    agent.start()
    reason = agent.request("one")["reason"]
    agent.until(lambda: reason in [event["reason"] for event in agent.events()], "its event, which is written last")
    return agent


def profiles(agent: Agent) -> list[str]:
    return [each.partition("@")[0] for each in agent.geometry()[0]]


def settled(agent: Agent, config: str = "two") -> None:
    agent.reaches("success", config)
    assert profiles(agent) == {"one": ONE, "two": TWO}[config]
    assert agent.deploy() == DEPLOY
    assert names.PAUSE_ANNOTATION not in agent.node()["metadata"]["annotations"]


def pod(agent: Agent, name: str, app: str = "nvidia-device-plugin-daemonset") -> None:
    spec = {"nodeName": agent.name, "containers": [{"name": "x", "image": "x"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "labels": {"app": app}}
    agent.create("pods", {"metadata": metadata, "spec": spec}, NAMESPACE)


def remove(agent: Agent, name: str) -> None:
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0")


class TestTheApiServerDisappears:
    @pytest.mark.parametrize("how", ["refuse", "hang"])
    @pytest.mark.parametrize("nth", [1, 2, 3, 5], ids=["pause", "before-apply", "labels", "restore"])
    def test_at_one_write_for_a_while(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, nth: int, how: str
    ) -> None:
        agent = at_one(only_standin("a100-sxm4-40gb"))
        before = len(agent.writes())
        with unavailable_at(standin_cluster, nth, how) as gone:
            agent.label(config="two")
            assert gone.wait(10)
            time.sleep(2.5)
            done = len(agent.writes()) > before
        assert done == (nth > 2), "no GPU is touched before it is known that its clients are gone"
        settled(agent)
        agent.until(lambda: probe(agent, "/readyz")[0] == 200, "ready again")

    def test_while_operands_are_leaving(self, make_agent: MakeAgent, cluster: Cluster) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        pod(agent, "plugin-x")
        before = len(agent.writes())
        agent.label(config="two")
        agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause")
        with cluster.unavailable("refuse"):
            time.sleep(2)
            agent.until(lambda: probe(agent, "/readyz")[0] == 503, "not ready")
            assert probe(agent, "/healthz")[0] == 200
        assert len(agent.writes()) == before
        remove(agent, "plugin-x")
        settled(agent)


class TestOthersWriteToo:
    def test_everything_at_once_on_the_node(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        last = [0]

        def blow(count: int) -> None:
            last[0] = count
            agent.patch({"metadata": {"annotations": {"somebody": str(count)}, "labels": {"somebody": str(count)}}})

        with hammer(blow):
            for config in ("two", "one", "two"):
                agent.label(config=config)
                settled(agent, config)
        assert agent.labels()["somebody"] == str(last[0]), "the label of another writer is kept"

    def test_the_state_label_is_ours_whatever_others_write(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        with hammer(lambda n: agent.label(**{names.STATE_LABEL: "failed" if n % 2 else None})):
            agent.label(config="two")
            agent.until(lambda: profiles(agent) == TWO, "the change")
        settled(agent)

    def test_the_pause_is_undone_again_and_again(self, make_agent: MakeAgent) -> None:
        # No GPU is touched under a client that comes back, the agent does not fight for ever, and it reports the
        # conflict.
        agent = at_one(make_agent("a100-sxm4-40gb"), "times: {retry-first-seconds: 1, retry-longest-seconds: 1}")
        before = len(agent.writes())

        def put_back(count: int) -> None:
            if agent.labels().get(PLUGIN) == names.PAUSED:
                agent.label(**{PLUGIN: "true"})
            time.sleep(0.02)

        pod(agent, "plugin-x")
        with hammer(put_back):
            agent.label(config="two")
            reported = agent.reaches("failed", "two", "PauseUndone")
            assert PLUGIN in reported["message"]
            assert len(agent.writes()) == before
        remove(agent, "plugin-x")
        settled(agent)

    def test_a_second_agent_for_the_same_node(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        twin = copy.copy(agent)
        twin.log_path = agent.folder / "twin.log"
        twin.start()
        try:
            for config in ("two", "one", "two", "one"):
                before = len(agent.writes())
                agent.label(config=config)
                settled(agent, config)
                assert len(agent.writes()) - before == 4, "the change is made once: two calls to destroy, two to create"
            time.sleep(1)
            settled(agent, "one")
        finally:
            twin.kill()


class TestObjectsComeAndGo:
    def test_a_watch_from_too_long_ago(self, make_agent: MakeAgent, cluster: Cluster) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        with cluster.unavailable("refuse"):
            pass
        cluster.expire()
        agent.label(config="two")
        settled(agent)
        agent.configure("custom", {"config.yaml": TEXT.replace("2g.10gb: 1", "1g.5gb: 1")})
        agent.until(lambda: profiles(agent) == ONE, "the edited config")

    def test_the_node_is_made_again(self, make_agent: MakeAgent) -> None:
        # As when a person deletes a node and the kubelet registers it again: nothing of ours is on it, not even a
        # request.
        agent = at_one(make_agent("a100-sxm4-40gb"))
        before, published = len(agent.writes()), gfd(agent)
        assert "nvidia.com/mig-1g.5gb.count" in published
        agent.call("DELETE", f"/api/v1/nodes/{agent.name}")
        time.sleep(0.5)
        agent.create("nodes", {"metadata": {"name": agent.name, "labels": DEPLOY}})
        agent.until(lambda: agent.status().get("reason") == "NoWish", "no wish")
        agent.until(lambda: gfd(agent) == published, "its labels")
        assert len(agent.writes()) == before
        agent.request("two")
        settled(agent)

    def test_the_node_is_made_again_in_the_middle(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        pod(agent, "plugin-x")
        agent.label(config="two")
        agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause")
        agent.call("DELETE", f"/api/v1/nodes/{agent.name}")
        agent.create("nodes", {"metadata": {"name": agent.name, "labels": DEPLOY | {names.CONFIG_LABEL: "two"}}})
        agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause of the new node")
        remove(agent, "plugin-x")
        settled(agent)

    def test_the_configs_vanish_and_come_back(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        before = len(agent.writes())
        agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/custom")
        reported = agent.reaches("failed", "one", "ConfigMissing")
        assert "custom" in reported["message"]
        agent.configure("custom", {"config.yaml": TEXT})
        settled(agent, "one")
        assert len(agent.writes()) == before

    def test_settings_vanish_and_come_back(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        before = len(agent.writes())
        agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{names.SETTINGS_MAP}")
        reported = agent.reaches("failed", "one", "UnknownConfig")
        assert "'one'" in reported["message"]
        settings(agent)
        settled(agent, "one")
        assert len(agent.writes()) == before


def gfd(agent: Agent) -> dict[str, str]:
    """Return the labels that describe the GPUs."""
    found = agent.labels()
    return {k: v for k, v in found.items() if k.startswith("nvidia.com/") and k not in (*DEPLOY, *OURS)}


OURS = (names.CONFIG_LABEL, names.STATE_LABEL, "nvidia.com/gfd.timestamp")
RULES = {
    "node": {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    "patch": {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    "maps": {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
    "generated": {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]},
    "pods": {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    "validators": {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
    "events": {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
}


class TestARightIsMissing:
    def grant(self, agent: Agent, *left_out: str) -> None:
        rules = [rule for name, rule in RULES.items() if name not in left_out]
        root = "/apis/rbac.authorization.k8s.io/v1"
        role = {"metadata": {"name": "some"}, "rules": rules}
        if agent.cluster.request("GET", f"{root}/clusterroles/some").status == 404:
            agent.call("POST", f"{root}/clusterroles", role)
            subject = {"kind": "ServiceAccount", "name": "agent", "namespace": NAMESPACE}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"}
            binding = {"metadata": {"name": "some"}, "roleRef": reference, "subjects": [subject]}
            agent.call("POST", f"{root}/clusterrolebindings", binding)
        else:
            agent.call("PATCH", f"{root}/clusterroles/some", {"rules": rules}, "application/merge-patch+json")

    def start(self, agent: Agent, *left_out: str) -> Agent:
        settings(agent)
        self.grant(agent, *left_out)
        agent.arguments += ["--kubeconfig", str(agent.cluster.kubeconfig(NAMESPACE, "agent"))]
        agent.label(config="one")
        agent.start()
        return agent

    @pytest.mark.parametrize(
        ("left_out", "right"),
        [
            ("node", "list nodes"),
            ("maps", "list configmaps in namespace gpu-operator"),
            ("patch", "patch nodes node-0"),
        ],
    )
    def test_it_is_named_nothing_is_touched_and_given_it_is_used(
        self, make_agent: MakeAgent, left_out: str, right: str
    ) -> None:
        agent = self.start(make_agent("a100-sxm4-40gb"), left_out)
        agent.until(lambda: f"lacks permission to {right}" in agent.log(), f"a word about the right to {right}")
        agent.until(lambda: "lacks permission to" in probe(agent, "/readyz")[1], "not ready")
        assert probe(agent, "/readyz")[0] == 503
        assert "kubectl auth can-i" in agent.log()
        assert not agent.writes()
        self.grant(agent)
        settled(agent, "one")
        agent.until(lambda: probe(agent, "/readyz")[0] == 200, "ready")

    @pytest.mark.parametrize("left_out", ["generated", "validators", "events"])
    def test_what_can_do_without_it_does(self, make_agent: MakeAgent, left_out: str) -> None:
        agent = make_agent("a100-sxm4-40gb")
        pod(agent, "validator", "nvidia-operator-validator")
        self.start(agent, left_out)
        settled(agent, "one")
        assert "lacks permission to" in agent.log()

    def test_without_sight_of_pods_nothing_is_touched_and_nothing_stays_paused(self, make_agent: MakeAgent) -> None:
        agent = self.start(make_agent("a100-sxm4-40gb"), "pods")
        reported = agent.reaches("failed", "one", "Forbidden")
        assert "list pods" in reported["message"]
        assert agent.deploy() == DEPLOY
        assert not agent.writes()
        self.grant(agent)
        settled(agent, "one")


class TestANewerRequest:
    def test_while_the_first_one_waits(self, make_agent: MakeAgent) -> None:
        # For operands, for holders, for the next attempt: a wait ends within a moment.
        agent = at_one(make_agent("a100-sxm4-40gb"), "times: {retry-first-seconds: 3000, retry-longest-seconds: 3000}")
        pod(agent, "plugin-x")
        agent.label(config="two")
        agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the wait for operands")
        self.comes_at_once(agent, "one")
        remove(agent, "plugin-x")
        instance = next(i["id"] for i in agent.sim.show()["gpus"][0]["instances"] if i["profile"] == "1g.5gb")
        agent.sim.hold(0, instance)
        agent.patch({"metadata": {"annotations": {names.HOLDERS_ANNOTATION: "wait"}}})
        agent.label(config="two")
        agent.reaches("pending", "two", "WaitingForHolders")
        self.comes_at_once(agent, "one")
        agent.sim.release(0, instance)
        agent.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
        agent.request("two", "failed", "ApplyFailed")
        self.comes_at_once(agent, "one")

    def comes_at_once(self, agent: Agent, config: str) -> None:
        begun = time.monotonic()
        agent.label(config=config)
        settled(agent, config)
        assert time.monotonic() - begun < 4

    def test_twenty_in_a_second_end_at_the_last_with_little_work(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent
    ) -> None:
        agent = at_one(only_standin("a100-sxm4-40gb"))
        control = standin_cluster.standin.control
        before, calls = control.count("patch", "nodes"), len(agent.writes())
        for count in range(20):
            agent.label(config=("two", "one")[count % 2])
            time.sleep(0.05)
        agent.label(config="two")
        settled(agent)
        time.sleep(1)
        settled(agent)
        changes = (len(agent.writes()) - calls) / 4
        assert changes <= 21
        assert control.count("patch", "nodes") - before - 21 <= 4 * 21, "no more than four writes a request"
