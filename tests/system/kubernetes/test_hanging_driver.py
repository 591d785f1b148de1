"""A driver that does not return: the agents report it on the node, stay reachable, withdraw nothing and recover with
it.

They end on request.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest

from aliquot.foundation.driver_calls import VARIABLE
from aliquot.foundation.paths import simulated_nodes
from aliquot.kubernetes.gpu import names
from aliquot.sim import lifecycle as control
from support.agents import DEPLOY, Agent, MakeAgent
from support.devicesagent import DevicesAgent, MakeDevices
from system.kubelet.kubeletdouble import Container, Kubelet, Pod

HANGS_S = 1.0
SEVEN = [f"1g.5gb@{n}" for n in range(7)]


@pytest.fixture
def agent(make_agent: MakeAgent) -> Agent:
    """Build an agent for which a driver call hangs after HANGS_S, and that uses the driver through its library."""
    made = make_agent("a100-sxm4-40gb")
    made.environment |= {VARIABLE: str(HANGS_S), "ALIQUOT_BACKEND": "shim"}
    return made


def page(agent: Agent | DevicesAgent, name: str) -> tuple[int, str]:
    """Return status and text of one of the agent's pages."""
    port = agent.log().rpartition("health and metrics on port ")[2].split('"')[0]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def oldest_s(agent: Agent | DevicesAgent, family: str = "agent") -> float:
    """Return the metric of the seconds for which the oldest driver call has been running."""
    start = f'aliquot_{family}_driver_call_seconds{{node="{agent.name}"}} '
    return float(page(agent, "metrics")[1].partition(start)[2].split("\n")[0])


def threads(agent: Agent | DevicesAgent) -> int:
    assert agent.process is not None
    return len(os.listdir(f"/proc/{agent.process.pid}/task"))


def server(agent: Agent | DevicesAgent) -> int:
    """Return the pid of the process that answers for the driver."""
    lines = control.connect(simulated_nodes(agent.state), "control.sock")
    try:
        return int(msgspec.json.decode(lines.request('{"do":"ping"}'), type=dict[str, int])["pid"])
    finally:
        lines.close()


def ends(agent: Agent | DevicesAgent) -> None:
    """End the agent with SIGTERM, in less time than the kubelet grants."""
    began = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - began < 20


def test_a_driver_that_hangs_is_visible_and_the_agent_recovers_with_it(agent: Agent) -> None:
    agent.start()
    agent.request("all-1g.5gb")
    writes, labels = agent.writes(), agent.labels()
    agent.sim.inject_fault("hang")
    reported = agent.reaches("failed", "all-1g.5gb", "DriverHangs")
    assert "the driver has not returned from" in reported["message"]
    assert "for more than 1 s" in reported["message"]
    count = threads(agent)
    code, text = page(agent, "readyz")
    assert code == 503
    assert "the driver has not returned from" in text
    assert page(agent, "healthz") == (200, "ok\n")
    assert oldest_s(agent) >= HANGS_S
    assert [e["type"] for e in agent.events() if e["reason"] == "DriverHangs"] == ["Warning"]
    assert agent.labels() | {names.STATE_LABEL: "success"} == labels, "nothing but the state has changed"
    time.sleep(3 * HANGS_S)
    assert threads(agent) <= count, "no more threads wait for the driver"
    assert agent.status() == reported, "it is said once"
    agent.sim.inject_fault("none")
    agent.reaches("success", "all-1g.5gb")
    agent.until(lambda: page(agent, "readyz") == (200, "ok\n"), "the agent to be ready")
    assert oldest_s(agent) < HANGS_S
    assert agent.writes() == writes


def test_a_driver_that_hangs_from_the_start(agent: Agent) -> None:
    agent.label(config="all-1g.5gb")
    agent.sim.inject_fault("hang")
    agent.start()
    agent.reaches("failed", "all-1g.5gb", "DriverHangs")
    assert page(agent, "readyz")[0] == 503
    ends(agent)
    agent.start()
    agent.sim.inject_fault("none")
    agent.reaches("success", "all-1g.5gb")


def test_a_request_that_comes_meanwhile_is_answered_and_met_later(agent: Agent) -> None:
    agent.start()
    agent.request("all-1g.5gb")
    agent.sim.inject_fault("hang")
    agent.request("all-3g.20gb", "failed", "DriverHangs")
    agent.sim.inject_fault("none")
    agent.reaches("success", "all-3g.20gb")
    assert agent.geometry() == [["3g.20gb@0", "3g.20gb@4"]]


def test_a_change_whose_call_hangs_goes_on_once_it_returns(agent: Agent) -> None:
    # Paused services stay paused, since the change is not over.
    agent.start()
    agent.request("all-disabled")
    agent.sim.inject_fault("hang", call="DeviceCreateGpuInstanceWithPlacement")
    reported = agent.request("all-1g.5gb", "failed", "DriverHangs")
    assert "creating a GPU instance" in reported["message"]
    assert page(agent, "readyz")[0] == 503
    assert page(agent, "healthz") == (200, "ok\n")
    assert set(agent.deploy().values()) != {"true"}
    assert agent.writes().count("DeviceCreateGpuInstanceWithPlacement") == 0
    agent.sim.inject_fault("none")
    agent.reaches("success", "all-1g.5gb")
    assert agent.geometry() == [SEVEN]
    assert agent.deploy() == DEPLOY
    assert agent.writes().count("DeviceCreateGpuInstanceWithPlacement") == 7, "it was one change"


@pytest.mark.parametrize("call", [None, "DeviceCreateGpuInstanceWithPlacement"], ids=["a read", "a change"])
def test_the_agent_ends_although_a_call_hangs(agent: Agent, call: str | None) -> None:
    agent.start()
    agent.request("all-disabled")
    agent.sim.inject_fault("hang", call=call)
    agent.request("all-1g.5gb", "failed", "DriverHangs")
    ends(agent)
    assert "exiting while the driver has not returned from" in agent.log()
    agent.sim.inject_fault("none")
    agent.start()
    agent.reaches("success", "all-1g.5gb")
    assert agent.deploy() == DEPLOY


def test_whatever_answers_for_the_driver_is_stopped(agent: Agent) -> None:
    agent.start()
    agent.request("all-1g.5gb")
    driver = server(agent)
    os.kill(driver, signal.SIGSTOP)
    try:
        agent.label(config="all-3g.20gb")
        agent.until(lambda: agent.labels().get(names.STATE_LABEL) == "failed", "the state")
        assert agent.status()["reason"] == "DriverHangs"
    finally:
        os.kill(driver, signal.SIGCONT)
    agent.reaches("success", "all-3g.20gb")


class TestTheDevicesAgent:
    def test_it_says_so_and_leaves_everything_as_it_is(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.environment[VARIABLE] = str(HANGS_S)
        agent.start()
        agent.enabled("0000:01:00.0")
        agent.until(lambda: agent.standing().get("state") == "working", "the node's annotation")
        agent.at_rest()
        objects = agent.everything()
        agent.sim.inject_fault("hang")
        agent.until(lambda: agent.standing().get("reason") == "DriverHangs", "the hang on the node")
        assert agent.standing()["state"] == "waiting"
        code, text = page(agent, "readyz")
        assert code == 503
        assert "the driver has not returned from" in text
        assert page(agent, "healthz") == (200, "ok\n")
        assert oldest_s(agent, "devices") >= HANGS_S
        assert agent.everything() == objects
        agent.sim.inject_fault("none")
        agent.until(lambda: agent.standing().get("state") == "working", "the recovery")
        agent.until(lambda: page(agent, "readyz")[0] == 200, "the agent to be ready")
        assert agent.everything() == objects

    def test_it_ends_although_a_call_hangs(self, make_devices: MakeDevices) -> None:
        agent = make_devices("a2:vfio")
        agent.environment[VARIABLE] = str(HANGS_S)
        agent.start()
        agent.until(lambda: agent.standing().get("state") == "working", "the node's annotation")
        agent.sim.inject_fault("hang")
        agent.until(lambda: agent.standing().get("reason") == "DriverHangs", "the hang on the node")
        ends(agent)

    def test_a_driver_that_is_stopped_from_the_start(self, make_devices: MakeDevices) -> None:
        # The first read of the bus hangs, before there is a session with the driver.
        agent = make_devices("a2:vfio")
        agent.environment[VARIABLE] = str(HANGS_S)
        driver = server(agent)
        os.kill(driver, signal.SIGSTOP)
        try:
            agent.start()
            agent.until(lambda: agent.standing().get("reason") == "DriverHangs", "the hang on the node", 20)
            code, text = page(agent, "readyz")
            assert code == 503
            assert "the driver has not returned from" in text
        finally:
            os.kill(driver, signal.SIGCONT)
        agent.until(lambda: agent.standing().get("state") == "working", "the recovery")
        os.kill(driver, signal.SIGSTOP)
        try:
            ends(agent)
        finally:
            os.kill(driver, signal.SIGCONT)

    def test_machines_get_vgpus_while_the_driver_hangs(self, make_devices: MakeDevices) -> None:
        # Devices offered to the kubelet stay offered, and are allocated. A kubelet that starts again gets them again.
        agent = make_devices("a2:vfio")
        agent.environment[VARIABLE] = str(HANGS_S)
        root = Path(tempfile.mkdtemp(prefix="kl-"))  # a unix socket's path has 107 bytes
        kubelet = Kubelet(root)
        agent.arguments = ["--kubelet-dir", str(root)]
        kubelet.start()
        try:
            agent.start()
            agent.enabled("0000:01:00.0")
            agent.carrying("0000:01:00.4")
            agent.until(lambda: list(kubelet.allocatable.values()) == [1], "a vGPU for kubelet")
            resource = next(iter(kubelet.allocatable))
            agent.sim.inject_fault("hang")
            agent.until(lambda: agent.standing().get("reason") == "DriverHangs", "the hang on the node")
            kubelet.restart()
            agent.until(lambda: kubelet.allocatable.get(resource) == 1, "the vGPU again", 20)
            given = kubelet.admit(Pod("virt-launcher", (Container("compute", {resource: 1}),)))["compute"]
            assert given.envs
            assert agent.standing()["reason"] == "DriverHangs"
        finally:
            agent.sim.inject_fault("none")
            agent.kill()
            kubelet.stop()
            shutil.rmtree(root, ignore_errors=True)
