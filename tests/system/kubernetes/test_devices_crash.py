"""SIGKILL of the devices agent at every write, to the API server and to the machine: the end is the same."""

from __future__ import annotations

import time

import pytest

from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION
from support.cluster import StandinCluster
from support.devicesagent import CHECK_S, DevicesAgent, MakeDevices
from system.kubernetes.knife import Knife, await_death

A30 = "0000:01:00.0"
"""The GPU's address. An A30 has six virtual functions only, and so few objects to be written."""
ONE, TWO = "0000:01:00.4", "0000:01:00.5"
WISHES: tuple[dict[str, str], ...] = ({ONE: "NVIDIA A30-4C"}, {TWO: "NVIDIA A30-8C"})
STILL_S = 1.5 * CHECK_S
WORLDS = pytest.mark.parametrize("world", ["mdev", "vfio"])
WHENS = pytest.mark.parametrize("when", ["before", "after"])


def wish(agent: DevicesAgent, wanted: dict[str, str]) -> None:
    """Everything else goes first, as the rule of equal sizes needs it. The agent sees both wishes, or one of them."""
    for function in (ONE, TWO):
        if function not in wanted:
            agent.set("vgpudevices", function, {"enabled": False})
    for function, name in wanted.items():
        agent.set("vgpudevices", function, {"enabled": True, "vGPUTypeName": name})


def here(agent: DevicesAgent, wanted: dict[str, str]) -> bool:
    told = {function: agent.configured(function) for function in (ONE, TWO)}
    return agent.vgpus() == wanted and {f: name for f, name in told.items() if name} == wanted


def as_wished(agent: DevicesAgent, wanted: dict[str, str], world: str) -> bool:
    """The wish is met, and nothing is left over: a claim for each vGPU of the vendor VFIO world, and no other."""
    claims = {claim["spec"]["address"] for claim in agent.all("pcideviceclaims").values()}
    both = all(agent.ready("vgpudevices", each) for each in (ONE, TWO))
    return here(agent, wanted) and claims == (set(wanted) if world == "vfio" else set()) and both


def settled(agent: DevicesAgent, wanted: dict[str, str], world: str) -> None:
    agent.until(lambda: as_wished(agent, wanted, world), f"{wanted}, and exactly its claims")


class Quiet:
    """True once a request is met and there was no write for longer than the agent takes to look again. The objects are
    read once for each state: without a write they stay the same.
    """

    def __init__(self, agent: DevicesAgent, wanted: dict[str, str], world: str) -> None:
        self._asked = agent, wanted, world
        self._seen: object = None
        self._met = False
        self._since = time.monotonic()

    def __call__(self) -> bool:
        agent = self._asked[0]
        now = agent.cluster.revision, agent.vgpus()
        if now != self._seen:
            self._seen, self._met, self._since = now, as_wished(*self._asked), time.monotonic()
        return self._met and time.monotonic() - self._since > STILL_S


@WHENS
@WORLDS
class TestAtEachWrite:
    @pytest.mark.slow
    def test_to_the_api_server(
        self, standin_cluster: StandinCluster, devices_on_standin: MakeDevices, world: str, when: str
    ) -> None:
        agent = self.bed(devices_on_standin, world)
        knife = Knife(agent)
        standin_cluster.standin.control.gate = knife.gate
        cuts: list[str] = []
        turn = 0
        while True:
            turn += 1
            wanted = WISHES[turn % 2]
            knife.arm(len(cuts) + 1, when)
            wish(agent, wanted)
            if not await_death(agent, knife, Quiet(agent, wanted, world)):
                break
            cuts.append(knife.seen[-1])
            agent.start()
            settled(agent, wanted, world)
        settled(agent, wanted, world)
        assert sum("status" in cut or "PATCH" in cut for cut in cuts) >= 3, cuts
        assert world == "mdev" or {"POST pcideviceclaims"} <= set(cuts), cuts

    def test_to_the_machine(self, devices_on_standin: MakeDevices, world: str, when: str) -> None:
        agent = self.bed(devices_on_standin, world)
        nth = 0
        while True:
            nth += 1
            wanted = WISHES[nth % 2]
            agent.sim.inject_fault("kill", nth=nth, when=when)
            wish(agent, wanted)
            if not await_death(agent, None, Quiet(agent, wanted, world)):
                break
            agent.start()
            settled(agent, wanted, world)
        agent.sim.inject_fault("none")
        assert nth > 2, "a vGPU that goes and one that comes are two writes"

    def bed(self, make: MakeDevices, world: str) -> DevicesAgent:
        """At the first of both wishes."""
        agent = make(f"a30:{world}")
        agent.start()
        agent.until(lambda: agent.one("sriovgpudevices", A30), "the GPU's object")
        agent.set("sriovgpudevices", A30, {"enabled": True}, {SKIP_MIG_ANNOTATION: "true"})
        agent.until(lambda: len(agent.all("vgpudevices")) == 6, "its functions")
        wish(agent, WISHES[0])
        settled(agent, WISHES[0], world)
        return agent


def test_while_virtual_functions_come_and_go(devices_on_standin: MakeDevices) -> None:
    """They come late; the agent dies while they do, and its successor neither switches twice nor misses one."""
    agent = devices_on_standin("a2:vfio")
    agent.start()
    agent.until(lambda: agent.one("sriovgpudevices", A30), "the GPU's object")
    agent.sim.inject_fault("vf-delay", seconds=3.0)
    agent.set("sriovgpudevices", A30, {"enabled": True})
    agent.until(lambda: "SriovManage" in agent.writes(), "the program to run")
    agent.kill()
    agent.start()
    agent.until(lambda: len(agent.all("vgpudevices")) == 16, "16 functions")
    agent.until(lambda: agent.ready("sriovgpudevices", A30), "ready")
    assert agent.writes().count("SriovManage") == 1
