"""The host's GPU services around a change, on a real bus: the real agent, and a scripted systemd."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import DEPLOY, Agent, MakeAgent
from support.cluster import Cluster
from system.systemd.conftest import StandinHost


@pytest.fixture
def host() -> Iterator[StandinHost]:
    if shutil.which("dbus-daemon") is None:
        pytest.skip("no dbus-daemon (apt-get install dbus)")
    folder = Path(tempfile.mkdtemp(prefix="host-"))  # a socket's path has 107 bytes
    made = StandinHost(folder)
    for name in ("nvsm.service", "dcgm.service", "own.service"):
        made.define(name)
        made.start(name)
    yield made
    made.close()
    shutil.rmtree(folder)


@pytest.fixture
def agent(make_agent: MakeAgent, host: StandinHost) -> Agent:
    made = make_agent("a100-sxm4-40gb")
    made.environment |= {"HOST_ROOT_MOUNT": host.root, "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "true"}
    return made


def orders(host: StandinHost) -> list[str]:
    """Return the calls to systemd, in order: ``StopUnit dcgm.service``."""
    return [call for call in host.standin.calls if call.startswith(("StopUnit", "StartUnit"))]


def running(host: StandinHost) -> dict[str, str]:
    return {name: unit.active for name, unit in host.standin.units.items()}


ALL_RUN = {"nvsm.service": "active", "dcgm.service": "active", "own.service": "active"}


def test_stopped_for_a_reset_and_started_in_reverse(agent: Agent, host: StandinHost) -> None:
    agent.start()
    agent.request("all-1g.5gb")
    assert [order.split()[1] for order in orders(host)] == [
        "nvsm.service",
        "dcgm.service",
        "dcgm.service",
        "nvsm.service",
    ]
    assert running(host) == ALL_RUN


def test_a_change_without_reset_stops_nothing(agent: Agent, host: StandinHost) -> None:
    agent.sim.set_mode(0, True)
    agent.start()
    agent.request("all-1g.5gb")
    assert orders(host) == []


def test_without_the_setting_nothing_is_stopped(agent: Agent, host: StandinHost) -> None:
    agent.environment["WITH_SHUTDOWN_HOST_GPU_CLIENTS"] = "false"
    agent.start()
    agent.request("all-1g.5gb")
    assert orders(host) == []


def test_an_edited_list_counts_at_the_next_change(agent: Agent, host: StandinHost) -> None:
    agent.start()
    agent.request("all-1g.5gb")
    before = len(orders(host))
    agent.configure("default-gpu-clients", {"clients.yaml": "version: v1\nsystemd-services: [own]\n"})
    agent.request("all-disabled")
    assert [order.split()[1] for order in orders(host)[before:]] == ["own.service", "own.service"]
    assert running(host) == ALL_RUN


def test_a_list_that_cannot_be_read_fails_before_anything(agent: Agent, host: StandinHost) -> None:
    agent.configure("default-gpu-clients", {"clients.yaml": "version: v1\nsystemd-services: {dcgm: yes}\n"})
    agent.start()
    agent.request("all-1g.5gb", "failed", "InvalidClients")
    assert orders(host) == []
    assert agent.writes() == []
    assert agent.deploy() == DEPLOY


def test_a_change_that_fails_starts_them_again(agent: Agent, host: StandinHost) -> None:
    agent.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999)
    agent.start()
    agent.request("all-1g.5gb", "failed", "ApplyFailed")
    agent.until(lambda: running(host) == ALL_RUN, "services run again")
    assert agent.deploy() == DEPLOY


def test_one_that_does_not_start_is_named_and_tried_again(agent: Agent, host: StandinHost) -> None:
    agent.settings("mig: {strategy: mixed}\ntimes: {retry-first-seconds: 1}")
    unit = host.standin.units["nvsm.service"]
    host.standin.on_order = lambda when, order: setattr(unit, "fails", True) if order.startswith("StopUnit") else None
    agent.start()
    reported = agent.request("all-1g.5gb", "failed", "HostClientsDown")
    assert "nvsm.service" in reported["message"] + str(reported.get("details"))
    assert agent.deploy() == DEPLOY
    host.standin.on_order = lambda when, order: None
    host.repair("nvsm.service")
    agent.reaches("success", "all-1g.5gb")
    assert running(host) == ALL_RUN


def test_killed_while_they_are_stopped_the_next_agent_starts_them(
    agent: Agent, host: StandinHost, cluster: Cluster
) -> None:
    agent.sim.inject_fault("kill", nth=3, when="before")
    agent.start()
    agent.label(config="all-1g.5gb")
    assert agent.process is not None
    agent.process.wait(30)
    assert running(host)["dcgm.service"] == "inactive"
    agent.process = None
    agent.start()
    agent.reaches("success", "all-1g.5gb")
    assert running(host) == ALL_RUN
    assert agent.deploy() == DEPLOY
