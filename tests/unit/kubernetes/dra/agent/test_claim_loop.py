"""Cycles of the claim agent: it publishes what is known, and serves claims while the API server is not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.errors import ApiUnavailableError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_status import ClaimStatusWriter
from aliquot.kubernetes.dra.agent.loop import CHECK_S, ClaimAgentLoop, ClaimKeeper, NodeOffer, NodeSlices
from aliquot.kubernetes.dra.agent.metrics import ClaimAgentMetrics
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.agent.stale_claims import GONE_S, StaleClaims
from aliquot.kubernetes.dra.model.attributes import semantic_version
from aliquot.kubernetes.dra.model.ranking import PublishedChoice, PublishPolicy
from aliquot.kubernetes.node_agent.agent_loop import UNREAD_S, AgentLoop
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from unit.kubernetes.dra.agent.bench import Bench, claim, run
from unit.kubernetes.dra.agent.slices import NODE, Bed, choice
from unit.kubernetes.dra.model.nodes import NAMING

SMALL = "gpu-0-mig-1g.5gb-4"


async def _no_pods() -> Sequence[PodDeviceUse]:
    return ()


class Agent:
    """The loop of a simulated node."""

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.bed = Bed()
        self.offers: list[NodeOffer] = []
        self.seen: list[Inventory] = []
        self.node = Informer(Node, name="n1")
        api: Any = SimpleNamespace()
        self.claims = ClaimInformer(api, "gpu.aliquot.dev", lambda pool: True)
        self.metrics = ClaimAgentMetrics("n1")
        self.agent_loop = AgentLoop()
        hardware: Any = self.bench.gpus
        hardware.unhealthy = frozenset({"GPU-bad"})
        self.now = 0.0
        stale = StaleClaims(_no_pods, lambda: self.now)
        keeper = ClaimKeeper(self.bench.preparer, self.bench.store, stale, self.bench.gpus.boot)
        status = ClaimStatusWriter(api, self.claims, "gpu.aliquot.dev")
        slices = NodeSlices(self.node, self.claims, self.bed.publisher, self.build, status, dict)
        self.loop = ClaimAgentLoop(self.agent_loop, hardware, keeper, slices, self.metrics, self.seen.append)

    def build(self, offer: NodeOffer) -> PublishedChoice:
        self.offers.append(offer)
        return choice(0, 1)

    def read_everything(self) -> None:
        self.node.apply(FullList((NODE,), "1"))
        self.claims.claims.apply(FullList((), "1"))
        self.bed.publisher.slices.apply(FullList((), "1"))

    def figure(self, name: str) -> float:
        found = self.metrics.registry.get_sample_value(name, {"node": "n1"})
        assert found is not None
        return found


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_nothing_is_published_before_all_is_read(agent: Agent) -> None:
    assert run(agent.loop.cycle()) == UNREAD_S
    assert agent.agent_loop.error == "the node's object is not read yet"
    agent.node.apply(FullList((NODE,), "1"))
    assert run(agent.loop.cycle()) == UNREAD_S
    assert agent.agent_loop.error == "the ResourceSlices are not read yet"
    assert not agent.bed.server.items


def test_an_idle_node_writes_nothing(agent: Agent) -> None:
    agent.read_everything()
    assert run(agent.loop.cycle()) == CHECK_S
    assert run(agent.loop.cycle()) == CHECK_S
    assert (agent.bed.server.log, agent.agent_loop.error) == (["create", "create"], "")
    assert len(agent.seen) == 2
    assert agent.offers[0].unhealthy == {"GPU-bad"}
    assert agent.figure("aliquot_claims_published_devices") == 2
    assert agent.figure("aliquot_claims_slice_writes_total") == 2


def test_devices_have_the_facts_of_the_driver(agent: Agent) -> None:
    agent.read_everything()
    run(agent.loop.cycle())
    facts = agent.bench.gpus.node.backend.facts()
    devices = NodeDevices("n1", NAMING, PublishPolicy()).choose(agent.offers[0]).devices
    found = [device.attributes["driverVersion"].version_value for device in devices]
    assert found == [semantic_version(facts.driver)] * len(devices)
    assert found[0]


def test_a_prepared_claim_counts_as_allocated(agent: Agent) -> None:
    async def story() -> None:
        await agent.bench.one(claim("train", SMALL))
        agent.read_everything()
        await agent.loop.cycle()
        assert agent.offers[0].allocated == {SMALL}
        assert agent.figure("aliquot_claims_prepared") == 1

    run(story())


def test_devices_come_back_and_claims_are_served_without_the_api_server(agent: Agent) -> None:
    async def story() -> None:
        first = await agent.bench.one(claim("train", SMALL))
        agent.bench.cluster.unavailable = True
        agent.bench.gpus.reboot()

        def unavailable(_: str) -> None:
            raise ApiUnavailableError("the API server does not answer")

        agent.bed.server.before = unavailable
        agent.read_everything()
        agent.claims.claims.note_failure(ApiUnavailableError("no answer"))
        with pytest.raises(ApiUnavailableError):
            await agent.loop.cycle()
        assert agent.bench.gpus.instances() == ["1g.5gb@4"]
        assert (await agent.bench.one(claim("train", SMALL))).uid == first.uid
        await agent.bench.unprepare(claim("train", SMALL))
        assert agent.bench.recorded().claims == ()

    run(story())


def test_a_forgotten_claim_is_released_after_a_reboot(agent: Agent) -> None:
    async def story() -> None:
        await agent.bench.one(claim("train", SMALL))
        agent.bench.gpus.reboot()
        agent.read_everything()  # the cluster has no claim
        await agent.loop.cycle()
        assert agent.bench.recorded().claims == ()
        assert agent.bench.gpus.instances() == []

    run(story())


@pytest.mark.parametrize("wakes", [(), (10.0,), (10.0, 31.0, 59.0)])
def test_a_forgotten_claim_is_released_on_time_whenever_the_loop_woke_before(
    agent: Agent, wakes: tuple[float, ...]
) -> None:
    async def story() -> None:
        await agent.bench.one(claim("train", SMALL))
        agent.read_everything()  # the cluster has no claim
        waits = list(wakes)
        while agent.bench.recorded().claims:
            assert agent.now <= GONE_S, "released late"
            due = agent.now + await agent.loop.cycle()
            if not agent.bench.recorded().claims:
                break
            agent.now = min(due, waits.pop(0)) if waits else due
        assert agent.now == GONE_S
        assert agent.offers[-1].allocated == frozenset()

    run(story())
