"""The machine under a running agent fails: no driver, a GPU falls off the bus, a reboot, a full disk."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from zlib import crc32

import pytest

from aliquot.foundation.paths import simulated_nodes
from aliquot.kubernetes.gpu import names
from aliquot.sim import lifecycle as control
from support.agents import DEPLOY, Agent, MakeAgent

SEVEN = [f"1g.5gb@{n}" for n in range(7)]
SLOW = pytest.mark.slow
HALVES = ["3g.20gb@0", "3g.20gb@4"]
SOON = "mig: {strategy: mixed}\ntimes: {check-seconds: 5, retry-first-seconds: 1, retry-longest-seconds: 1}"


def at_seven(agent: Agent) -> Agent:
    """Return the agent at rest, with seven instances and slow calls of the driver."""
    agent.settings(SOON)
    agent.start()
    agent.request("all-1g.5gb")
    return agent


def settled(agent: Agent, config: str, geometry: list[str]) -> None:
    agent.until(lambda: agent.geometry()[0] == geometry, f"{config} on the GPU")
    agent.reaches("success", config)
    assert agent.deploy() == DEPLOY
    assert names.PAUSE_ANNOTATION not in agent.node()["metadata"]["annotations"]


def server(agent: Agent) -> int:
    """Return the pid of the simulator, which is the driver here."""
    folder = os.open(simulated_nodes(agent.state), os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{folder}/control.sock")
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    finally:
        os.close(folder)
    return int.from_bytes(peer[:4], sys.byteorder)


def middle(agent: Agent, nth: int) -> None:
    """Wait until the GPUs are on their way from seven instances to two, at the nth call or after it."""
    before = len(agent.writes())
    agent.label(config="all-3g.20gb")
    agent.until(lambda: len(agent.writes()) >= before + nth, "the middle")
    assert len(agent.writes()) < before + 18, "it is over already"


class TestTheDriver:
    @SLOW
    def test_it_is_restarted_while_nothing_is_to_be_done(self, only_standin: MakeAgent) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb", latency="measured"))
        os.kill(server(agent), signal.SIGKILL)
        time.sleep(6)
        settled(agent, "all-1g.5gb", SEVEN)
        agent.request("all-3g.20gb")
        settled(agent, "all-3g.20gb", HALVES)

    @pytest.mark.parametrize("nth", [pytest.param(1, marks=SLOW), 3, pytest.param(15, marks=SLOW)])
    def test_it_is_restarted_in_the_middle_of_a_change(self, only_standin: MakeAgent, nth: int) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb", latency="measured"))
        middle(agent, nth)
        os.kill(server(agent), signal.SIGKILL)
        settled(agent, "all-3g.20gb", HALVES)

    def test_it_is_gone_for_a_while_and_a_request_comes(self, only_standin: MakeAgent) -> None:
        # NVML does not answer: paused services are restored, the reason is reported, and the request is met when it is
        # back.
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        agent.sim.inject_fault("fail", call="DeviceGetMigMode", code=999, calls=10_000)
        reported = agent.request("all-3g.20gb", "failed")
        assert reported["reason"] in ("GpusUnreadable", "NoDriver")
        assert agent.deploy() == DEPLOY
        agent.sim.inject_fault("none")
        settled(agent, "all-3g.20gb", HALVES)


class TestAGpu:
    def test_it_falls_off_the_bus_in_the_middle(self, only_standin: MakeAgent) -> None:
        # The other GPU is not affected. The node reports which GPU is lost, and paused services are restored.
        agent = only_standin("a100-sxm4-40gb*2")
        agent.settings(SOON)
        agent.start()
        agent.request("all-1g.5gb")
        pci = agent.sim.show()["gpus"][1]["pci"]
        agent.sim.inject_fault("lost", gpu=1, after=3)
        agent.label(config="all-3g.20gb")
        agent.until(lambda: "GPU_LOST" in agent.log() or pci in str(agent.status()), "a word about it")
        settled(agent, "all-3g.20gb", HALVES)
        assert f"{pci}) fell off the bus and is left alone" in str(agent.status()["details"])
        assert "cannot write the CDI documents" not in agent.log()

    def test_a_process_ends_that_was_waited_for(self, only_standin: MakeAgent) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        pid = agent.sim.hold(0, agent.sim.show()["gpus"][0]["instances"][2]["id"])
        agent.patch({"metadata": {"annotations": {names.HOLDERS_ANNOTATION: "wait"}}})
        agent.label(config="all-3g.20gb")
        agent.reaches("pending", "all-3g.20gb", "WaitingForHolders")
        agent.sim.terminate(pid)
        settled(agent, "all-3g.20gb", HALVES)


class TestAReboot:
    """The simulated machine loses its instances, as a real one does. The agent is not on it, and keeps running."""

    def test_while_nothing_is_to_be_done(self, only_standin: MakeAgent) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        agent.sim.reboot()
        settled(agent, "all-1g.5gb", SEVEN)

    @pytest.mark.parametrize("nth", [pytest.param(2, marks=SLOW), 10, pytest.param(16, marks=SLOW)])
    def test_in_the_middle_of_a_change(self, only_standin: MakeAgent, nth: int) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb", latency="measured"))
        middle(agent, nth)
        agent.sim.reboot()
        settled(agent, "all-3g.20gb", HALVES)

    def test_with_the_agent_and_a_different_request_afterwards(self, make_agent: MakeAgent) -> None:
        agent = at_seven(make_agent("a100-sxm4-40gb"))
        agent.sim.inject_fault("kill", nth=3, when="after")
        agent.label(config="all-3g.20gb")
        agent.cluster.wait(lambda: agent.process is None or agent.process.poll() is not None, "its end")
        agent.kill()
        agent.sim.reboot()
        agent.label(config="all-2g.10gb")
        agent.start()
        settled(agent, "all-2g.10gb", ["2g.10gb@0", "2g.10gb@2", "2g.10gb@4"])


class TestTheDisk:
    # A folder in a file's place simulates a disk that is full or read-only: the tests run as root.
    def test_no_journal_no_change(self, only_standin: MakeAgent) -> None:
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        before = len(agent.writes())
        journal = Path(control.folder(agent.state, "machine"), "change-journal.jsonl")
        journal.rename(journal.with_suffix(".kept"))
        journal.mkdir()
        reported = agent.request("all-3g.20gb", "failed", "ApplyRefused")
        assert str(journal) in reported["message"]
        assert agent.deploy() == DEPLOY
        assert len(agent.writes()) == before
        journal.rmdir()
        settled(agent, "all-3g.20gb", HALVES)

    def test_a_bad_byte_in_the_agents_state_is_an_event_and_stops_nothing(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        path = Path(control.folder(agent.state, "machine"), "agent-state.json")
        path.write_bytes(b"\xff")
        agent.start()
        agent.until(lambda: [e for e in agent.events() if e["reason"] == "StateFileUnreadable"], "the event")
        agent.request("all-3g.20gb")
        assert f"{path} cannot be understood" in agent.log()

    @pytest.mark.parametrize("change", [{"actions": "melt"}, pytest.param("mig", marks=pytest.mark.long)])
    def test_what_another_version_and_bad_bytes_left_stops_nothing(
        self, only_standin: MakeAgent, change: object
    ) -> None:
        # An agent is replaced during a change by one that cannot read its journal nor its other files.
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        agent.sim.inject_fault("kill", nth=3, when="after")
        agent.label(config="all-3g.20gb")
        agent.cluster.wait(lambda: agent.process is None or agent.process.poll() is not None, "its end")
        agent.kill()
        folder = Path(control.folder(agent.state, "machine"))
        journal = folder / "change-journal.jsonl"
        lines = journal.read_bytes().splitlines()
        number = max(n for n, line in enumerate(lines) if b'"kind":"begin"' in line)
        body = json.dumps(json.loads(lines[number][9:]) | {"change": change}).encode()
        lines[number] = b"%08x %s" % (crc32(body), body)
        journal.write_bytes(b"".join(line + b"\n" for line in lines))
        damaged = [path for path in folder.glob("*.json") if path.name != "usage-record.json"]
        for path in damaged:
            path.write_bytes(b"\xff")
        agent.start()
        settled(agent, "all-3g.20gb", HALVES)
        assert "InternalFault" not in agent.log()
        assert "boot-record.json" in {path.name for path in damaged}
        for path in damaged:
            assert f"{path} cannot be understood" in agent.log()

    def test_no_record_no_reboot(self, only_standin: MakeAgent) -> None:
        # Without a record, the reboot would be requested again and again.
        agent = only_standin("a100-sxm4-40gb")
        agent.environment["WITH_REBOOT"] = "true"
        agent.settings(SOON)
        boots = agent.sim.show()["boots"]
        record = Path(control.folder(agent.state, "machine"), "agent-state.json")
        record.unlink(missing_ok=True)
        record.mkdir()
        with agent.client():
            agent.start()
            reported = agent.request("all-1g.5gb", "failed", "NoRecord")
            assert str(record.parent) in reported["message"]
            assert agent.deploy() == DEPLOY
            assert agent.sim.show()["boots"] == boots
            record.rmdir()
            settled(agent, "all-1g.5gb", SEVEN)
        assert agent.sim.show()["boots"] == boots + 1

    def test_a_record_that_cannot_be_understood_stops_nothing(self, only_standin: MakeAgent) -> None:
        # What is paused is restored, and the next configuration is applied.
        agent = at_seven(only_standin("a100-sxm4-40gb"))
        agent.kill()
        agent.label(**{f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED})
        record = Path(control.folder(agent.state, "machine"), "agent-state.json")
        Path(f"{record}.previous").unlink(missing_ok=True)
        record.write_bytes(b"{\xff torn")
        agent.start()
        agent.request("all-3g.20gb")
        settled(agent, "all-3g.20gb", HALVES)
        assert agent.deploy() == DEPLOY
