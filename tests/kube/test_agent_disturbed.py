"""The API server goes away, others write at the same time, objects vanish, rights are missing: what the agent makes of
it, and that everything is as it should be as soon as the disturbance is over.
"""

from __future__ import annotations

import copy
import time

import pytest

from agents import DEPLOY, NAMESPACE, Agent, MakeAgent
from aliquot.integrations.kubernetes import names
from cluster import Cluster, StandinCluster
from kube.disturb import away_at, hammer, probe

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
    """The agent at rest, its node at config one."""
    settings(agent, more)
    agent.start()
    agent.wish("one")
    return agent


def profiles(agent: Agent) -> list[str]:
    return [each.partition("@")[0] for each in agent.geometry()[0]]


def settled(agent: Agent, config: str = "two") -> None:
    agent.reaches("success", config)
    assert profiles(agent) == {"one": ONE, "two": TWO}[config]
    assert agent.deploy() == DEPLOY
    assert names.PAUSE_ANNOTATION not in agent.node()["metadata"]["annotations"]


def pod(agent: Agent, name: str) -> None:
    spec = {"nodeName": agent.name, "containers": [{"name": "x", "image": "x"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "labels": {"app": "nvidia-device-plugin-daemonset"}}
    agent.create("pods", {"metadata": metadata, "spec": spec}, NAMESPACE)


def remove(agent: Agent, name: str) -> None:
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0")


class TestTheApiServerGoesAway:
    @pytest.mark.parametrize("how", ["refuse", "hang"])
    @pytest.mark.parametrize("nth", [1, 2, 3, 5], ids=["pause", "before-apply", "labels", "restore"])
    def test_at_one_write_for_a_while(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, nth: int, how: str
    ) -> None:
        agent = at_one(only_standin("a100-sxm4-40gb"))
        before = len(agent.writes())
        with away_at(standin_cluster, nth, how) as gone:
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
        with cluster.away("refuse"):
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
        assert agent.labels()["somebody"] == str(last[0]), "nobody's label is overwritten"

    def test_the_state_label_is_ours_whatever_others_write(self, make_agent: MakeAgent) -> None:
        agent = at_one(make_agent("a100-sxm4-40gb"))
        with hammer(lambda n: agent.label(**{names.STATE_LABEL: "failed" if n % 2 else None})):
            agent.label(config="two")
            agent.until(lambda: profiles(agent) == TWO, "the change")
        settled(agent)

    def test_somebody_undoes_the_pause_again_and_again(self, make_agent: MakeAgent) -> None:
        """No GPU is touched under a client that comes back, nobody fights for ever, and it is told."""
        agent = at_one(make_agent("a100-sxm4-40gb"), "times: {retry-first-seconds: 1, retry-longest-seconds: 1}")
        before = len(agent.writes())

        def put_back(count: int) -> None:
            if agent.labels().get(PLUGIN) == names.PAUSED:
                agent.label(**{PLUGIN: "true"})
            time.sleep(0.02)

        pod(agent, "plugin-x")
        with hammer(put_back):
            agent.label(config="two")
            told = agent.reaches("failed", "two", "PauseUndone")
            assert PLUGIN in told["message"]
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
