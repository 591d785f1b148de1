"""Two writers on one node: of two agents of a role one works and the other waits for its end.

An agent that finds another process in the middle of a change neither fails nor undoes anything.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING
from support.agents import DEPLOY, Agent, MakeAgent
from support.devicesagent import MakeDevices
from system.kubernetes.disturb import hammer, probe
from system.kubernetes.test_agent_disturbed import PLUGIN, pod, remove

HOLDER = """
import sys
from aliquot.foundation.lock import FileLock
with FileLock(sys.argv[1]).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_writer(agent: Agent) -> Iterator[int]:
    """Hold the node's change lock in another process, as ``aliquot apply`` does. Yield its id."""
    path = os.path.join(agent.state, "sim", "machine", "lock")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child.pid
        finally:
            child.kill()


@contextmanager
def history(agent: Agent) -> Iterator[list[tuple[str, bool]]]:
    """Record the node's reports meanwhile, in order: the state label, and whether the device plugin was paused."""
    seen: list[tuple[str, bool]] = []

    def observe(_: int) -> None:
        labels = agent.labels()
        now = labels.get(names.STATE_LABEL, ""), labels[PLUGIN] == names.PAUSED
        if seen[-1:] != [now]:
            seen.append(now)

    with hammer(observe):
        yield seen
    observe(0)


def twin_of(agent: Agent) -> Agent:
    """Build a second agent of the same role on the same node."""
    twin = copy.copy(agent)
    twin.log_path = agent.folder / "twin.log"
    twin.process = None
    return twin


def waits(agent: Agent) -> str:
    """Return the readiness page of an agent that does not hold the lock of its role."""
    agent.until(lambda: "health and metrics on port" in agent.log(), "its pages")
    agent.until(lambda: "process" in probe(agent, "/readyz")[1], "a word about the other agent")
    status, text = probe(agent, "/readyz")
    assert status == 503
    assert probe(agent, "/healthz")[0] == 200
    return text


class TestTwoLabelAgents:
    def test_one_works_and_the_other_waits(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb*2", latency="measured")
        agent.start()
        agent.until(lambda: agent.status().get("reason") == "NoWish", "the first agent at rest")
        assert agent.process is not None
        twin = twin_of(agent)
        twin.start()
        try:
            assert f"process {agent.process.pid} (" in waits(twin)
            with history(agent) as seen:
                agent.label(config="all-1g.5gb")
                agent.reaches("success", "all-1g.5gb")
            assert "failed" not in [state for state, _ in seen]
            assert [paused for _, paused in seen] == [False, True, False], seen
            assert "node label to" not in twin.log(), "it publishes nothing"
            assert f"process {agent.process.pid} (" in twin.log()
        finally:
            twin.kill()

    def test_the_other_takes_over_what_a_killed_one_left(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb*2", latency="measured")
        pod(agent, "plugin-x")
        agent.start()
        twin = twin_of(agent)
        agent.until(lambda: agent.status().get("reason") == "NoWish", "the first agent at rest")
        twin.start()
        try:
            waits(twin)
            agent.label(config="all-1g.5gb")
            agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause")
            record = json.loads(agent.node()["metadata"]["annotations"][names.PAUSE_ANNOTATION])
            assert record["owner"]["agent"]
            agent.kill()
            twin.until(lambda: "the other agent has ended" in twin.log(), "the takeover")
            remove(agent, "plugin-x")
            twin.reaches("success", "all-1g.5gb")
            assert agent.deploy() == DEPLOY
            assert names.PAUSE_ANNOTATION not in agent.node()["metadata"]["annotations"]
            twin.until(lambda: probe(twin, "/readyz")[0] == 200, "ready")
        finally:
            twin.kill()

    def test_the_other_takes_over_when_the_first_ends_in_order(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        agent.start()
        agent.label(config="all-3g.20gb")
        agent.reaches("success", "all-3g.20gb")
        twin = twin_of(agent)
        twin.start()
        try:
            waits(twin)
            assert agent.stop() == 0
            agent.label(config="all-1g.5gb")
            twin.reaches("success", "all-1g.5gb")
            assert "the other agent has ended" in twin.log()
            assert agent.deploy() == DEPLOY
        finally:
            twin.kill()

    def test_one_that_waits_ends_when_it_is_asked_to(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        agent.start()
        agent.until(lambda: agent.status().get("reason") == "NoWish", "the first agent at rest")
        twin = twin_of(agent)
        twin.start()
        waits(twin)
        begun = time.monotonic()
        assert twin.stop() == 0
        assert time.monotonic() - begun < 5


class TestAnAgentIsAskedToEnd:
    def test_a_change_that_is_under_way_is_finished_first(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb", latency="measured")
        agent.start()
        agent.label(config="all-1g.5gb")
        agent.until(lambda: len(agent.writes()) >= 3, "the middle of the change")
        assert agent.stop() == 0
        assert len(agent.sim.show()["gpus"][0]["instances"]) == 7
        assert agent.deploy() == DEPLOY

    def test_what_is_paused_is_given_back_at_sighup(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        pod(agent, "plugin-x")
        agent.start()
        agent.label(config="all-1g.5gb")
        agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause")
        assert agent.process is not None
        agent.process.send_signal(signal.SIGHUP)
        assert agent.process.wait(30) == 0
        agent.process = None
        assert agent.deploy() == DEPLOY


def begun(agent: Agent, *words: str) -> subprocess.Popen[str]:
    """Start ``aliquot`` on the agent's node, in the middle of a change."""
    environment = {**os.environ, "ALIQUOT_STATE_DIR": agent.state}
    before = len(agent.writes())
    command = [sys.executable, "-m", "aliquot", *words, "--sim", "machine"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    agent.until(lambda: len(agent.writes()) > before, "its first call")
    return process


class TestAnAgentAndApplyAtOnce:
    def test_the_agent_waits_for_apply_and_then_does_what_the_label_says(self, only_standin: MakeAgent) -> None:
        # The GPU is in MIG mode: no reset is needed, which the agent's own open session would forbid.
        agent = only_standin("a100-sxm4-40gb", latency="measured")
        agent.sim.set_mode(0, True)
        agent.start()
        agent.until(lambda: agent.status().get("reason") == "NoWish", "the agent at rest")
        # The apply must still run when the agent observes, on a busy machine too.
        agent.sim.inject_fault("slow", call="DeviceCreateGpuInstanceWithPlacement", seconds=2, calls=2)
        with history(agent) as seen:
            applying = begun(agent, "apply", "--gpu", "0", "--mig", "1g.5gb*4")
            agent.label(config="all-3g.20gb")
            message = agent.reaches("pending", "all-3g.20gb", "Locked")["message"]
            assert f"process {applying.pid} (" in message
            assert agent.deploy() == DEPLOY
            out, err = applying.communicate(timeout=60)
            assert (applying.returncode, "verified by a fresh read" in out) == (0, True), err
            agent.reaches("success", "all-3g.20gb")
        assert "failed" not in [state for state, _ in seen]
        assert agent.deploy() == DEPLOY
        assert len(agent.sim.show()["gpus"][0]["instances"]) == 2

    def test_apply_is_refused_while_the_agent_changes_the_gpus(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb", latency="measured")
        agent.start()
        agent.label(config="all-1g.5gb")
        agent.until(lambda: agent.writes(), "the agent's first call")
        refused = begun(agent, "apply", "--gpu", "0", "--mig", "3g.20gb*2")
        _, err = refused.communicate(timeout=60)
        assert refused.returncode == 20
        assert agent.process is not None
        assert "LOCKED" in err
        assert f"process {agent.process.pid} (" in err
        agent.reaches("success", "all-1g.5gb")
        assert len(agent.sim.show()["gpus"][0]["instances"]) == 7


class TestAnotherProcessIsAtTheGpus:
    def test_nothing_is_paused_for_a_change_that_must_wait(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        agent.start()
        with history(agent) as seen:
            with another_writer(agent) as pid:
                agent.label(config="all-1g.5gb")
                reported = agent.reaches("pending", "all-1g.5gb", "Locked")
                assert f"process {pid} (" in reported["message"]
                assert len(reported["message"]) < 300
                time.sleep(2)
                assert agent.deploy() == DEPLOY
                assert not agent.writes()
            agent.reaches("success", "all-1g.5gb")
        assert "failed" not in [state for state, _ in seen]
        assert agent.deploy() == DEPLOY

    def test_a_pause_stays_until_the_other_has_ended(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        pod(agent, "plugin-x")
        agent.start()
        with history(agent) as seen:
            agent.label(config="all-1g.5gb")
            agent.until(lambda: agent.labels()[PLUGIN] == names.PAUSED, "the pause")
            with another_writer(agent):
                remove(agent, "plugin-x")
                agent.reaches("pending", "all-1g.5gb", "Locked")
                time.sleep(2)
                assert agent.labels()[PLUGIN] == names.PAUSED
            agent.reaches("success", "all-1g.5gb")
        assert "failed" not in [state for state, _ in seen]
        assert agent.deploy() == DEPLOY

    def test_what_a_living_agent_with_another_lock_paused_stays_paused(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        boot = agent.sim.show()["boot_id"]
        owner = {"agent": "other", "lock": "7:7", "boot": boot, "name": "pod elsewhere/agent (process 7)"}
        record = json.dumps({"former": {PLUGIN: "true"}, "owner": owner})
        marks = {"labels": {PLUGIN: names.PAUSED}, "annotations": {names.PAUSE_ANNOTATION: record}}
        agent.patch({"metadata": marks})
        agent.label(config="all-1g.5gb")
        agent.start()
        reported = agent.reaches("pending", "all-1g.5gb", "AnotherAgent")
        assert "pod elsewhere/agent (process 7)" in reported["message"]
        assert agent.labels()[PLUGIN] == names.PAUSED
        assert not agent.writes()
        agent.patch({"metadata": {"annotations": {names.PAUSE_ANNOTATION: None}}})
        agent.reaches("success", "all-1g.5gb")
        assert agent.deploy() == DEPLOY

    def test_a_record_of_an_older_version_names_no_owner_and_is_given_back(self, only_standin: MakeAgent) -> None:
        agent = only_standin("a100-sxm4-40gb")
        record = json.dumps({"former": {PLUGIN: "custom"}, "wish": "0"})
        agent.patch({"metadata": {"labels": {PLUGIN: names.PAUSED}, "annotations": {names.PAUSE_ANNOTATION: record}}})
        agent.start()
        agent.until(lambda: agent.labels()[PLUGIN] == "custom", "the former value")


class TestVirtualMachines:
    def test_of_two_agents_one_waits_and_another_writer_is_no_failure(self, devices_on_standin: MakeDevices) -> None:
        agent, gpu = devices_on_standin("a2:vfio"), "0000:01:00.0"
        agent.start()
        agent.until(lambda: agent.one("sriovgpudevices", gpu), "the GPU's object")
        twin = copy.copy(agent)
        twin.log_path, twin.process = agent.folder / "twin.log", None
        twin.start()
        try:
            assert agent.process is not None
            assert f"process {agent.process.pid} (" in waits(twin)
            with another_writer(agent) as pid:
                agent.set("sriovgpudevices", gpu, {"enabled": True})
                agent.until(
                    lambda: f"process {pid} (" in agent.condition("sriovgpudevices", gpu).get("message", ""), "its name"
                )
                assert agent.condition("sriovgpudevices", gpu)["reason"] == PENDING
            agent.enabled(gpu)
            agent.kill()
            twin.until(lambda: "the other agent has ended" in twin.log(), "the takeover")
            twin.until(lambda: probe(twin, "/readyz")[0] == 200, "ready")
        finally:
            twin.kill()
