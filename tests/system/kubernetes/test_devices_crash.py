"""SIGKILL of the devices agent at every write, to the API server and to the machine: the end is the same."""

from __future__ import annotations

import time

import pytest

from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION
from support.cluster import StandinCluster
from support.devicesagent import CHECK_S, DevicesAgent, MakeDevices
from system.kubernetes.knife import Knife, await_death

A30 = "0000:01:00.0"
"""The GPU's address. An A30 has only six virtual functions, so few objects are written."""
ONE, TWO = "0000:01:00.4", "0000:01:00.5"
REQUESTS: tuple[dict[str, str], ...] = ({ONE: "NVIDIA A30-4C"}, {TWO: "NVIDIA A30-8C"})
STILL_S = 1.5 * CHECK_S
FRAMEWORKS = pytest.mark.parametrize("framework", ["mdev", "vfio"])
WHENS = pytest.mark.parametrize("when", ["before", "after"])


def request(agent: DevicesAgent, wanted: dict[str, str]) -> None:
    """Disable everything else first, as the rule of equal sizes needs. The agent sees both requests, or one of them."""
    for function in (ONE, TWO):
        if function not in wanted:
            agent.set("vgpudevices", function, {"enabled": False})
    for function, name in wanted.items():
        agent.set("vgpudevices", function, {"enabled": True, "vGPUTypeName": name})


def here(agent: DevicesAgent, wanted: dict[str, str]) -> bool:
    reported = {function: agent.configured(function) for function in (ONE, TWO)}
    return agent.vgpus() == wanted and {f: name for f, name in reported.items() if name} == wanted


def apply_arguments(agent: DevicesAgent, wanted: dict[str, str], framework: str) -> bool:
    """Report whether the request is met without any leftovers: there is a claim for each vGPU of vendor VFIO, and no
    other.
    """
    claims = {claim["spec"]["address"] for claim in agent.all("pcideviceclaims").values()}
    both = all(agent.ready("vgpudevices", each) for each in (ONE, TWO))
    return here(agent, wanted) and claims == (set(wanted) if framework == "vfio" else set()) and both


def settled(agent: DevicesAgent, wanted: dict[str, str], framework: str) -> None:
    agent.until(lambda: apply_arguments(agent, wanted, framework), f"{wanted}, and exactly its claims")


class Quiet:
    """A condition that holds once a request is met and there was no write for longer than the agent's check interval.
    The objects are read once for each state: without a write they stay the same.
    """

    def __init__(self, agent: DevicesAgent, wanted: dict[str, str], framework: str) -> None:
        self._asked = agent, wanted, framework
        self._seen: object = None
        self._met = False
        self._since = time.monotonic()

    def __call__(self) -> bool:
        agent = self._asked[0]
        now = agent.cluster.revision, agent.vgpus()
        if now != self._seen:
            self._seen, self._met, self._since = now, apply_arguments(*self._asked), time.monotonic()
        return self._met and time.monotonic() - self._since > STILL_S


@WHENS
@FRAMEWORKS
class TestAtEachWrite:
    @pytest.mark.slow
    def test_to_the_api_server(
        self, standin_cluster: StandinCluster, devices_on_standin: MakeDevices, framework: str, when: str
    ) -> None:
        agent = self.bed(devices_on_standin, framework)
        knife = Knife(agent)
        standin_cluster.standin.control.gate = knife.gate
        cuts: list[str] = []
        turn = 0
        while True:
            turn += 1
            wanted = REQUESTS[turn % 2]
            knife.arm(len(cuts) + 1, when)
            request(agent, wanted)
            if not await_death(agent, knife, Quiet(agent, wanted, framework)):
                break
            cuts.append(knife.seen[-1])
            agent.start()
            settled(agent, wanted, framework)
        settled(agent, wanted, framework)
        assert sum("status" in cut or "PATCH" in cut for cut in cuts) >= 3, cuts
        assert framework == "mdev" or {"POST pcideviceclaims"} <= set(cuts), cuts

    def test_to_the_machine(self, devices_on_standin: MakeDevices, framework: str, when: str) -> None:
        agent = self.bed(devices_on_standin, framework)
        nth = 0
        while True:
            nth += 1
            wanted = REQUESTS[nth % 2]
            agent.sim.inject_fault("kill", nth=nth, when=when)
            request(agent, wanted)
            if not await_death(agent, None, Quiet(agent, wanted, framework)):
                break
            agent.start()
            settled(agent, wanted, framework)
        agent.sim.inject_fault("none")
        assert nth > 2, "a vGPU that goes and one that comes are two writes"

    def bed(self, make: MakeDevices, framework: str) -> DevicesAgent:
        """Build an agent with the first of both requests."""
        agent = make(f"a30:{framework}")
        agent.start()
        agent.until(lambda: agent.one("sriovgpudevices", A30), "the GPU's object")
        agent.set("sriovgpudevices", A30, {"enabled": True}, {SKIP_MIG_ANNOTATION: "true"})
        agent.until(lambda: len(agent.all("vgpudevices")) == 6, "its functions")
        request(agent, REQUESTS[0])
        settled(agent, REQUESTS[0], framework)
        return agent


def test_while_virtual_functions_come_and_go(devices_on_standin: MakeDevices) -> None:
    # They appear late. The agent dies meanwhile, and its successor neither switches twice nor misses one.
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
