"""The dashboard of a cluster: real agents on simulated GPUs, observed by watches, changed by labels."""

from __future__ import annotations

from aliquot.core.model.plan import HeldPolicy
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu, Repair, UseConfig
from aliquot.kubernetes.gpu import names
from support.agents import Agent, MakeAgent
from support.cluster import Cluster
from system.dashboard.clusterbed import ADMIN, Bed
from system.dashboard.clusterfixtures import cluster, make_agent, page, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "make_agent", "page", "real_cluster", "real_server", "standin_cluster"]
PCI = "0000:07:00.0"


def pci(agent: Agent, number: int = 0) -> str:
    return str(agent.sim.show()["gpus"][number]["pci"])


def started(make_agent: MakeAgent, template: str = "a100-sxm4-40gb*2") -> Agent:
    agent = make_agent(template)
    agent.start()
    return agent


def test_a_label_is_seen_to_succeed(page: Bed, make_agent: MakeAgent) -> None:
    agent = started(make_agent)
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    assert page.source.fleet.ready
    page.until(lambda: "all-1g.5gb" in page.source.configs, "named configs")
    preview = page.preview(UseConfig(nodes=(agent.name,), config="all-1g.5gb"))
    assert not preview.obstacles
    assert [p.planned for p in preview.pictures] == ["1g.5gb:7", "1g.5gb:7"]
    assert agent.geometry() == [[], []]
    done = page.execute(preview)
    assert done.status == "done", done
    assert page.reported[0] == "written: nvidia.com/mig.config=all-1g.5gb"
    page.until(lambda: page.geometry(agent.name) == agent.geometry(), "the page follows")
    page.until(
        lambda: page.make_observation(agent.name).state == "success", "the label and the document are watched apart"
    )
    observation = page.make_observation(agent.name)
    assert (observation.config, observation.state, observation.drift, observation.error) == (
        "all-1g.5gb",
        "success",
        (),
        "",
    )
    again = page.preview(UseConfig(nodes=(agent.name,), config="all-1g.5gb"))
    assert (again.actions, again.obstacles) == ((), ())


def test_a_gpu_is_cut_by_a_config_of_its_own_and_the_others_stay(page: Bed, make_agent: MakeAgent) -> None:
    agent = started(make_agent)
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    assert page.ask(UseConfig(nodes=(agent.name,), config="all-1g.5gb")).status == "done"
    page.until(lambda: page.geometry(agent.name) == agent.geometry(), "the page follows")
    done = page.ask(PartitionGpu(node=agent.name, gpu=pci(agent), mig="3g.20gb,2g.10gb"))
    assert done.status == "done", done
    first, second = agent.geometry()
    assert [each.partition("@")[0] for each in first] == ["2g.10gb", "3g.20gb"]
    assert second == [f"1g.5gb@{n}" for n in range(7)]
    page.until(lambda: page.geometry(agent.name) == agent.geometry(), "the page follows")
    assert page.make_observation(agent.name).config.startswith("own-")
    done = page.ask(PartitionGpu(node=agent.name, gpu=pci(agent), mig="empty"))
    assert (done.status, agent.geometry()[0]) == ("done", [])
    page.until(lambda: page.geometry(agent.name)[0] == [], "the page follows")
    assert page.ask(UseConfig(nodes=(agent.name,), config="all-balanced")).status == "done"


def test_a_hole_is_found_and_closed(page: Bed, make_agent: MakeAgent) -> None:
    """Three 1g instances block a 3g. Moving them makes room."""
    from aliquot.core.planner.fragmentation import find_fragmentation

    agent = started(make_agent, "a100-sxm4-40gb")
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    assert page.ask(PartitionGpu(node=agent.name, gpu=pci(agent), mig="1g.5gb@0,1g.5gb@4")).status == "done"
    page.until(lambda: page.geometry(agent.name) == agent.geometry(), "the page follows")
    found = page.make_observation(agent.name).inventory
    assert found is not None
    lost = find_fragmentation(found, found.gpus[0])
    assert lost is not None
    assert "4g.20gb" in [room.profile for room in lost.lost]
    assert page.ask(FitInstance(node=agent.name, gpu=pci(agent), profile="4g.20gb")).status == "done"
    assert [each.partition("@")[0] for each in agent.geometry()[0]] == ["1g.5gb", "1g.5gb", "4g.20gb"]


def test_an_impossible_cut_is_refused_before_anything_is_written(page: Bed, make_agent: MakeAgent) -> None:
    agent = started(make_agent, "a100-sxm4-40gb")
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    preview = page.preview(PartitionGpu(node=agent.name, gpu=pci(agent), mig="4g.20gb*2"))
    assert preview.obstacles
    assert page.execute(preview).status == "refused"
    assert agent.labels().get("nvidia.com/mig.config") is None
    missing = page.preview(UseConfig(nodes=(agent.name, "nobody"), config="all-1g.5gbb"))
    assert [o.rule for o in missing.obstacles] == ["UnknownConfig", "NoNode"]


def test_drift_that_is_not_healed_is_shown_and_repaired(page: Bed, make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {self-heal: false}\ntimes: {check-seconds: 5}")
    agent.start()
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    assert page.ask(UseConfig(nodes=(agent.name,), config="all-1g.5gb")).status == "done"
    agent.sim.destroy(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
    page.until(lambda: page.make_observation(agent.name).drift, "drift")
    page.until(lambda: page.make_observation(agent.name).state == "failed", "the drift is reported")
    done = page.ask(Repair(node=agent.name))
    assert done.status == "done", done
    assert len(agent.geometry()[0]) == 7


def test_a_cut_over_a_holder_waits_fails_and_is_then_forced(page: Bed, make_agent: MakeAgent) -> None:
    """Each request is a new attempt. The result of the previous one does not count, and its policy does not stay."""
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("holders: {wait-seconds: 1}\ntimes: {retry-first-seconds: 3000, retry-longest-seconds: 3000}")
    agent.sim.set_mode(0, True)
    agent.sim.hold(0, agent.sim.create(0, "3g.20gb"))
    agent.start()
    page.until(
        lambda: (found := page.make_observation(agent.name).inventory) and found.gpus[0].instances[0].held, "the holder"
    )

    def cut(policy: HeldPolicy) -> PartitionGpu:
        return PartitionGpu(node=agent.name, gpu=pci(agent), mig="7g.40gb", policy=policy)

    assert [o.rule for o in page.preview(cut("refuse")).obstacles] == ["HELD"]
    for _ in range(2):
        page.reported.clear()
        done = page.ask(cut("wait"))
        assert (done.status, done.code) == ("refused", "HeldTimeout"), done
        assert [line for line in page.reported if line.startswith("pending:")], agent.log()
    done = page.ask(cut("force"))
    assert done.status == "done", done
    assert agent.geometry() == [["7g.40gb@0"]]
    assert names.HOLDERS_ANNOTATION not in agent.node()["metadata"]["annotations"]


def test_what_failed_is_tried_at_once_when_it_is_asked_again(page: Bed, make_agent: MakeAgent) -> None:
    """This holds for the same request and for a repair. The agent's back-off does not apply to users."""
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("times: {retry-first-seconds: 3000, retry-longest-seconds: 3000}")
    agent.start()
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    ask = PartitionGpu(node=agent.name, gpu=pci(agent), mig="3g.20gb")
    agent.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=10_000)
    for each in (ask, ask, Repair(node=agent.name)):
        writes = len(agent.writes())
        done = page.ask(each)
        assert (done.status, done.code) == ("undone", "ApplyFailed"), done
        assert len(agent.writes()) > writes
        page.until(lambda: not page.make_observation(agent.name).changing, "the page follows")
    agent.sim.inject_fault("none")
    assert page.ask(Repair(node=agent.name)).status == "done"
    assert len(agent.geometry()[0]) == 1


def test_of_two_people_the_second_is_refused(page: Bed, make_agent: MakeAgent) -> None:
    agent = started(make_agent, "a100-sxm4-40gb")
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    first = page.preview(UseConfig(nodes=(agent.name,), config="all-1g.5gb"))
    second = page.preview(UseConfig(nodes=(agent.name,), config="all-balanced"))
    assert page.execute(first).status == "done"
    done = page.execute(second)
    assert (done.status, done.code) == ("refused", "MOVED"), done
    assert "the config of" in done.sentence
    assert agent.labels()["nvidia.com/mig.config"] == "all-1g.5gb"


def test_what_is_shown_of_a_node_that_is_down_or_whose_agent_is_unavailable_is_marked(
    page: Bed, make_agent: MakeAgent, cluster: Cluster
) -> None:
    agent = make_agent("a100-sxm4-40gb")
    pod = f"/api/v1/namespaces/gpu-operator/pods/{agent.deployed.name}"

    def ready(what: str, word: str) -> None:
        condition = {"type": "Ready", "status": word, "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m"}
        media = {"Content-Type": "application/strategic-merge-patch+json"}
        cluster.must("PATCH", f"{what}/status", {"status": {"conditions": [condition]}}, media)

    ready(f"/api/v1/nodes/{agent.name}", "True")
    agent.start()
    page.until(
        lambda: (observation := page.make_observation(agent.name)).inventory and not observation.error, "a fresh look"
    )
    ready(pod, "False")
    page.until(lambda: "is not available" in page.make_observation(agent.name).error, "the agent is away")
    preview = page.preview(UseConfig(nodes=(agent.name,), config="all-1g.5gb"))
    assert [o.rule for o in preview.obstacles] == ["Away"]
    ready(pod, "True")
    page.until(lambda: not page.make_observation(agent.name).error, "it is back")
    ready(f"/api/v1/nodes/{agent.name}", "Unknown")
    page.until(lambda: "is not ready" in page.make_observation(agent.name).error, "the node is down")
    assert page.make_observation(agent.name).inventory is not None
    cluster.must("DELETE", f"/api/v1/nodes/{agent.name}")
    page.until(lambda: "no longer in the cluster" in page.make_observation(agent.name).error, "the node is gone")


def test_an_api_server_that_is_unavailable_is_reported_and_what_was_seen_stays(
    page: Bed, make_agent: MakeAgent, cluster: Cluster
) -> None:
    agent = started(make_agent, "a100-sxm4-40gb")
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    with cluster.unavailable():
        page.until(lambda: "the API server is not available" in page.source.fleet.error, "away")
        assert page.make_observation(agent.name).inventory is not None
        assert "permissions cannot be checked now" in page.do(page.source.may(ADMIN, "config"))
    page.until(lambda: not page.source.fleet.error, "back", 90)


def test_what_a_node_costs_the_api_server_does_not_grow_with_nodes(page: Bed, make_agent: MakeAgent) -> None:
    """There is one watch on all documents, and none on each node's generated configs."""
    agents = [started(make_agent, "a100-sxm4-40gb"), started(make_agent, "a30")]
    page.until(lambda: all(page.make_observation(a.name).inventory for a in agents), "the nodes")
    page.until(lambda: "all-1g.6gb" in page.source.configs, "named configs of both")
    assert page.source.cache.maps == {}
    assert page.source.api.requests["list", "configmaps"] == 1
