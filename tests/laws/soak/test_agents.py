"""The agents on a simulated node: configs, objects, holders and settings change, and watches break."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laws.soak.growth import environment, soak
from laws.soak.program import Pages, Watches
from support.agents import DEPLOY, NAMESPACE, Agent
from support.cluster import StandinCluster
from support.devicesagent import DevicesAgent, install

TEXT = """version: v1
mig-configs:
  one:
  - devices: all
    mig-enabled: true
    mig-devices: {{3g.20gb: 1, 1g.5gb: {count}}}
  two:
  - devices: all
    mig-enabled: true
    mig-devices: {{2g.10gb: 1}}
  none:
  - devices: all
    mig-enabled: true
    mig-devices: {{}}
"""
A2, ONE, TWO = "0000:01:00.0", "0000:01:00.4", "0000:01:00.5"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandinCluster]:
    found = StandinCluster(tmp_path)
    yield found
    found.close()


class ObservationCounter:
    """A counter of the agent's reads of the hardware."""

    def __init__(self, agent: Agent, family: str) -> None:
        self._agent = agent
        self._count = re.compile(rf"^{family}_looks_total\S* (\S+)$", re.M)
        self._pages: list[Pages] = []

    @property
    def pages(self) -> Pages:
        """Return the agent's pages, over a new connection if ``leave`` closed the previous one."""
        if not self._pages:
            port = re.findall(r"health and metrics on port (\d+)", self._agent.log())[-1]
            self._pages.append(Pages(int(port)))
        return self._pages[-1]

    def leave(self) -> None:
        while self._pages:
            self._pages.pop().close()

    def count(self) -> float:
        found = self._count.search(self.pages.get("/metrics"))
        return float(found[1]) if found else 0.0

    @contextmanager
    def another(self) -> Iterator[None]:
        """Wait, after the block, for a read that is later than the block's beginning."""
        before = self.count()
        yield
        self._agent.until(lambda: self.count() > before, "another look")


@contextmanager
def started(agent: Agent, counter: ObservationCounter) -> Iterator[int]:
    """Start the agent in a fresh interpreter, wait until it is ready, and yield its pid."""
    agent.environment |= environment(agent.folder)
    try:
        agent.start()
        assert agent.process is not None
        agent.until(lambda: "health and metrics on port" in agent.log(), "its pages")
        agent.until(lambda: counter.count() >= 1, "its first look")
        yield agent.process.pid
    finally:
        counter.leave()
        agent.close()


def disturb(cluster: StandinCluster, agent: Agent, counter: ObservationCounter, number: int) -> None:
    """Make the disturbances of a cycle, in addition to its change."""
    match number % 7:
        case 0:
            cluster.standin.control.drop()
        case 1:
            cluster.expire()
        case 2:
            counter.pages.get("/readyz")
            counter.leave()
        case 3:
            agent.patch({"metadata": {"annotations": {"another": str(number)}}})
        case 4:
            agent.sim.inject_fault("xid", gpu=0, code=13)
        case 5:
            agent.sim.inject_fault("fail", call="DeviceGetTemperature", code=999, calls=1)


def resting(cluster: StandinCluster, counter: ObservationCounter) -> Callable[[], None]:
    """Return a function that ends idle connections and opens watches again. The agent has all its watches open now."""
    watches = Watches(cluster.standin.control)

    def rest() -> None:
        counter.leave()
        watches.again()

    return rest


def test_the_label_agent(cluster: StandinCluster, tmp_path: Path) -> None:
    cluster.namespace(NAMESPACE)
    agent = Agent(cluster, tmp_path, "node", "a100-sxm4-40gb", labels=DEPLOY)
    agent.configure("custom", {"config.yaml": TEXT.format(count=1)})
    agent.settings("mig: {strategy: mixed, config-map: custom}\n")
    counter = ObservationCounter(agent, "aliquot_agent")

    def change(number: int) -> None:
        """Request another layout. In every fourth cycle, the instances are held at first."""
        request = "two" if number % 8 else "one"
        if number % 16 == 4:
            held = agent.sim.show()["gpus"][0]["instances"][0]["id"]
            agent.sim.hold(0, held)
            agent.request(request, "failed", "Held")
            agent.sim.release(0, held)
            request = "none"
        agent.request(request)

    def cycle(number: int) -> None:
        disturb(cluster, agent, counter, number)
        match number % 4:
            case 0:
                change(number)
            case 1:
                with counter.another():
                    agent.configure("custom", {"config.yaml": TEXT.format(count=1 + number // 4 % 4)})
            case 2:
                with counter.another():
                    agent.settings(
                        f"mig: {{strategy: mixed, config-map: custom}}\ntimes: {{check-seconds: {20 + number}}}\n"
                    )
            case _:
                agent.request(f"missing-{number}", "failed")

    with started(agent, counter) as pid:
        soak(pid, tmp_path, cycle, resting(cluster, counter))


def test_the_devices_agent(cluster: StandinCluster, tmp_path: Path) -> None:
    install(cluster)
    agent = DevicesAgent(cluster, tmp_path, "node", "a2:vfio", labels={})
    counter = ObservationCounter(agent, "aliquot_devices")

    def cycle(number: int) -> None:
        disturb(cluster, agent, counter, number)
        if number % 8:
            with counter.another():
                agent.set("vgpudevices", ONE, {}, {"another": str(number)})
            return
        function = TWO if number % 16 else ONE
        agent.carrying(function, "NVIDIA A2-4Q" if number % 32 else "NVIDIA A2-8Q")
        agent.set("vgpudevices", function, {"enabled": False})
        agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")

    with started(agent, counter) as pid:
        agent.enabled(A2)
        soak(pid, tmp_path, cycle, resting(cluster, counter))
