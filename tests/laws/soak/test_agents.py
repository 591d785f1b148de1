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


class Looks:
    """How often an agent has looked at the hardware."""

    def __init__(self, agent: Agent, family: str) -> None:
        self._agent = agent
        self._count = re.compile(rf"^{family}_looks_total\S* (\S+)$", re.M)
        self._pages: list[Pages] = []

    @property
    def pages(self) -> Pages:
        """The agent's pages; a new connection once the former one was left."""
        if not self._pages:
            port = re.findall(r"health and metrics on port (\d+)", self._agent.log())[-1]
            self._pages.append(Pages(int(port)))
        return self._pages[-1]

    def leave(self) -> None:
        """Close the connection."""
        while self._pages:
            self._pages.pop().close()

    def count(self) -> float:
        found = self._count.search(self.pages.get("/metrics"))
        return float(found[1]) if found else 0.0

    @contextmanager
    def another(self) -> Iterator[None]:
        """Wait, after the block, for a look that is later than its beginning."""
        before = self.count()
        yield
        self._agent.until(lambda: self.count() > before, "another look")


@contextmanager
def started(agent: Agent, looks: Looks) -> Iterator[int]:
    """The agent in a fresh interpreter, ready; its pid."""
    agent.environment |= environment(agent.folder)
    try:
        agent.start()
        assert agent.process is not None
        agent.until(lambda: "health and metrics on port" in agent.log(), "its pages")
        agent.until(lambda: looks.count() >= 1, "its first look")
        yield agent.process.pid
    finally:
        looks.leave()
        agent.close()


def disturb(cluster: StandinCluster, agent: Agent, looks: Looks, number: int) -> None:
    """What happens beside the change of a cycle."""
    match number % 7:
        case 0:
            cluster.standin.control.drop()
        case 1:
            cluster.expire()
        case 2:
            looks.pages.get("/readyz")
            looks.leave()
        case 3:
            agent.patch({"metadata": {"annotations": {"another": str(number)}}})
        case 4:
            agent.sim.inject_fault("xid", gpu=0, code=13)
        case 5:
            agent.sim.inject_fault("fail", call="DeviceGetTemperature", code=999, calls=1)


def resting(cluster: StandinCluster, looks: Looks) -> Callable[[], None]:
    """What ends idle connections and opens watches again. The agent has all its watches open now."""
    watches = Watches(cluster.standin.control)

    def rest() -> None:
        looks.leave()
        watches.again()

    return rest


def test_the_label_agent(cluster: StandinCluster, tmp_path: Path) -> None:
    cluster.namespace(NAMESPACE)
    agent = Agent(cluster, tmp_path, "node", "a100-sxm4-40gb", labels=DEPLOY)
    agent.configure("custom", {"config.yaml": TEXT.format(count=1)})
    agent.settings("mig: {strategy: mixed, config-map: custom}\n")
    looks = Looks(agent, "aliquot_agent")

    def change(number: int) -> None:
        """Another layout; one in four times the instances are held at first."""
        wish = "two" if number % 8 else "one"
        if number % 16 == 4:
            held = agent.sim.show()["gpus"][0]["instances"][0]["id"]
            agent.sim.hold(0, held)
            agent.wish(wish, "failed", "Held")
            agent.sim.release(0, held)
            wish = "none"
        agent.wish(wish)

    def cycle(number: int) -> None:
        disturb(cluster, agent, looks, number)
        match number % 4:
            case 0:
                change(number)
            case 1:
                with looks.another():
                    agent.configure("custom", {"config.yaml": TEXT.format(count=1 + number // 4 % 4)})
            case 2:
                with looks.another():
                    agent.settings(
                        f"mig: {{strategy: mixed, config-map: custom}}\ntimes: {{check-seconds: {20 + number}}}\n"
                    )
            case _:
                agent.wish(f"missing-{number}", "failed")

    with started(agent, looks) as pid:
        soak(pid, tmp_path, cycle, resting(cluster, looks))


def test_the_devices_agent(cluster: StandinCluster, tmp_path: Path) -> None:
    install(cluster)
    agent = DevicesAgent(cluster, tmp_path, "node", "a2:vfio", labels={})
    looks = Looks(agent, "aliquot_devices")

    def cycle(number: int) -> None:
        disturb(cluster, agent, looks, number)
        if number % 8:
            with looks.another():
                agent.set("vgpudevices", ONE, {}, {"another": str(number)})
            return
        function = TWO if number % 16 else ONE
        agent.carrying(function, "NVIDIA A2-4Q" if number % 32 else "NVIDIA A2-8Q")
        agent.set("vgpudevices", function, {"enabled": False})
        agent.until(lambda: agent.vgpus() == {}, "the vGPU to go")

    with started(agent, looks) as pid:
        agent.enabled(A2)
        soak(pid, tmp_path, cycle, resting(cluster, looks))
