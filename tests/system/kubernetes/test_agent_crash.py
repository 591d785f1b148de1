"""SIGKILL at every step: a new agent comes to the same end, and restores everything.

Each loop changes one node to and fro, and kills the agent one write later each time, before the write and after it. It
ends when a change gets through without a kill, so no write is left out, however many there are.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.errors import AliquotError
from aliquot.kubernetes.gpu import names
from aliquot.sim.shim_build import compiler
from laws.crash.tripwire import build
from support.agents import NAMESPACE, Agent, MakeAgent
from support.cluster import Cluster, StandinCluster
from system.kubernetes.knife import Knife, await_death
from system.systemd.conftest import StandinHost

LABELS = {f"{names.DEPLOY_PREFIX}{k}": v for k, v in (("device-plugin", "true"), ("dcgm", "false"), ("client", "odd"))}
SERVICES = ("nvsm.service", "dcgm.service")
ENTRY = "  {}:\n  - devices: all\n    mig-enabled: {}\n    mig-devices: {{{}}}\n"
REQUESTS = {
    "one": ENTRY.format("one", "true", "3g.20gb: 1, 1g.5gb: 1"),
    "two": ENTRY.format("two", "true", "3g.20gb: 1, 2g.10gb: 1"),
    "off": ENTRY.format("off", "false", ""),
}
PAUSED = 2
"""The number of writes at the start of each change: the pause, and its event."""
PROFILES = {"one": ["1g.5gb", "3g.20gb"], "two": ["2g.10gb", "3g.20gb"], "off": []}


class Bed:
    """A node that is changed to and fro. ``start`` is the state of everything beside the GPUs, and must be restored at
    each end.
    """

    def __init__(self, agent: Agent, *, cordoned: bool = False) -> None:
        self.agent = agent
        self.cordoned = cordoned
        self.host: StandinHost | None = None
        self.pid = 0
        agent.configure("custom", {"config.yaml": "version: v1\nmig-configs:\n" + "".join(REQUESTS.values())})
        self.report("")
        agent.patch({"spec": {"unschedulable": True if cordoned else None}})

    def report(self, more: str) -> None:
        self.agent.settings("mig: {strategy: mixed, config-map: custom}\nholders: {cordon: true}\n" + more)

    def at(self, config: str) -> None:
        """Apply a config to the node. The agent is at rest then, and the large instance is in use."""
        self.agent.start()
        self.agent.request(config)
        self.hold()
        self.settled(config)

    def hold(self) -> None:
        instances = self.agent.sim.show()["gpus"][0]["instances"]
        for each in instances:
            if each["profile"] == "3g.20gb":
                self.pid = self.agent.sim.hold(0, each["id"])

    def use_services(self, host: StandinHost) -> None:
        self.host = host
        self.agent.environment["HOST_ROOT_MOUNT"] = host.root
        self.agent.configure("clients", {"clients.yaml": f"version: v1\nsystemd-services: [{', '.join(SERVICES)}]"})
        self.report("host-clients: {stop: true, config-map: clients}")
        for name in SERVICES:
            host.define(name, enabled=True)
            host.start(name)

    def here(self, config: str) -> bool:
        reported = self.agent.status()
        return reported.get("config") == config and reported.get("state") == "success"

    def settled(self, config: str) -> None:
        """Check that the request is met, and that nothing else is left of the change."""
        self.agent.reaches("success", config)
        self.as_before()
        assert self.profiles() == PROFILES[config]

    def profiles(self) -> list[str]:
        return [each.partition("@")[0] for each in self.agent.geometry()[0]]

    def as_before(self) -> None:
        """Check that what was paused, cordoned or stopped is as before, and that processes still use their instance."""
        node = self.agent.node()
        assert self.agent.deploy() == LABELS
        assert bool(node["spec"].get("unschedulable")) == self.cordoned
        assert names.PAUSE_ANNOTATION not in node["metadata"]["annotations"]
        gpu = self.agent.sim.show()["gpus"][0]
        assert not self.pid or self.pid in [p["pid"] for p in gpu["processes"]]
        assert gpu["mig"]["pending"] == gpu["mig"]["current"]
        if self.host is not None:
            self.agent.cluster.wait(self.serving, f"services to run again: {self.running()}")

    def serving(self) -> bool:
        return self.running() == list(SERVICES)

    def running(self) -> list[str]:
        assert self.host is not None
        return [name for name in SERVICES if self.host.state(name) == "active"]

    def untouched(self) -> None:
        """Check that no call reached the instance in use."""
        assert self.pid
        held = [c for c in self.agent.sim.calls() if c.get("write") and c["instance"] == self.held_instance()]
        assert [c["call"] for c in held if "Destroy" in c["call"]] == []

    def held_instance(self) -> int:
        processes = self.agent.sim.show()["gpus"][0]["processes"]
        return int(next(p["instance"] for p in processes if p["pid"] == self.pid))


@pytest.fixture
def host() -> Iterator[StandinHost]:
    """Provide a host in a folder of its own: the path of a socket has 107 bytes at most."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("no dbus-daemon (apt-get install dbus)")
    with tempfile.TemporaryDirectory() as folder:
        made = StandinHost(Path(folder, "host"))
        yield made
        made.close()


@pytest.fixture(scope="session")
def trip(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build a library that ends a process at an fsync."""
    try:
        return build(tmp_path_factory.mktemp("trip"), compiler())
    except AliquotError as error:
        pytest.skip(f"no C compiler: {error.brief}")


def pod(agent: Agent, name: str, app: str) -> None:
    agent.create(
        "pods",
        {
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {
                "nodeName": agent.name,
                "containers": [{"name": "main", "image": "x"}],
                "terminationGracePeriodSeconds": 0,
            },
        },
        NAMESPACE,
    )


def validators(agent: Agent) -> None:
    """Create the pods that the agent deletes, as their DaemonSets do."""
    for app in ("nvidia-cuda-validator", "nvidia-operator-validator"):
        if agent.cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{app}").status == 404:
            pod(agent, app, app)


def is_reported(knife: Knife, states: int) -> bool:
    """Report whether the event of the last of so many states is written and survived. The change is over then."""
    return knife.done.count("POST events") >= states


def other(config: str) -> str:
    return {"one": "two", "two": "one", "off": "one"}[config]


class TestAtEachWriteToTheApiServer:
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_new_agent_comes_to_the_same_end(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, when: str
    ) -> None:
        bed, knife = self.bed(standin_cluster, only_standin, cordoned=when == "after")
        config = "one"
        cuts: list[str] = []
        while self.cut(bed, knife, other(config), len(cuts) + 1, when):
            cuts.append(knife.seen[-1])
            config = other(config)
            bed.agent.start()
            bed.settled(config)
        bed.settled(other(config))
        bed.untouched()
        self.all_of_it(cuts)

    @pytest.mark.slow
    @pytest.mark.parametrize("requested", ["two", None], ids=["another-wish", "no-wish"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_and_so_it_does_where_the_request_changes_meanwhile(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, when: str, requested: str | None
    ) -> None:
        # From one to two with a kill, then one again or nothing.
        bed, knife = self.bed(standin_cluster, only_standin)
        cuts: list[str] = []
        while self.cut(bed, knife, "two", len(cuts) + 1, when):
            cuts.append(knife.seen[-1])
            if requested is None:
                bed.agent.label(config=None)
                bed.agent.start()
                bed.agent.until(lambda: bed.agent.status().get("reason") == "NoWish", "no wish")
                bed.as_before()
                assert names.STATE_LABEL not in bed.agent.labels()
                assert bed.profiles() in PROFILES.values()
                bed.agent.request("one")
            else:
                bed.agent.label(config="one")
                bed.agent.start()
            bed.settled("one")
        bed.untouched()
        self.all_of_it(cuts)

    def bed(self, cluster: StandinCluster, make: MakeAgent, *, cordoned: bool = False) -> tuple[Bed, Knife]:
        bed = Bed(make("a100-sxm4-40gb", labels=LABELS), cordoned=cordoned)
        knife = Knife(bed.agent)
        cluster.standin.control.gate = knife.gate
        bed.at("one")
        return bed, knife

    def cut(self, bed: Bed, knife: Knife, config: str, nth: int, when: str) -> bool:
        validators(bed.agent)
        bed.agent.until(knife.at_rest, "the event of the change before")
        knife.arm(nth, when)
        bed.agent.label(config=config)
        return await_death(bed.agent, knife, lambda: bed.here(config) and is_reported(knife, 2))

    def all_of_it(self, cuts: list[str]) -> None:
        """Check that the loop saw a whole change: pause, validators, labels, restore, and events."""
        assert cuts.count("PATCH node-0") >= 3, cuts
        assert cuts.count("POST events") >= 2, cuts
        assert {"DELETE nvidia-cuda-validator", "DELETE nvidia-operator-validator"} <= set(cuts)


class TestAtEachWriteToTheDriver:
    """A write is a call of NVML, or a reset. On the real API server only a sample is tested: the first and the last."""

    def test_nothing_in_use_is_reached_and_the_rest_is_finished(self, make_agent: MakeAgent, cluster: Cluster) -> None:
        bed = Bed(make_agent("a100-sxm4-40gb", labels=LABELS))
        bed.at("one")
        assert self.cut_to_and_fro(bed, "one", "two", sample=cluster.name == "real") >= 4
        bed.untouched()

    @pytest.mark.slow
    def test_a_mode_change_ends_with_the_mode_as_requested(self, only_standin: MakeAgent) -> None:
        bed = Bed(only_standin("a100-sxm4-40gb", labels=LABELS))
        bed.agent.start()
        bed.agent.request("off")
        assert self.cut_to_and_fro(bed, "off", "one") >= 4

    def cut_to_and_fro(self, bed: Bed, config: str, target: str, *, sample: bool = False) -> int:
        """Change to and fro with kills, and return how many writes there are."""
        nth = 0
        while True:
            nth += 1
            for when in ("before", "after"):
                config, target = target, config
                bed.agent.sim.inject_fault("kill", nth=nth, when=when)
                bed.agent.label(config=config)
                here = config
                if not await_death(bed.agent, None, lambda: bed.here(here)):  # noqa: B023 -- called at once
                    bed.agent.sim.inject_fault("none")
                    return nth - 1
                bed.agent.start()
                bed.settled(config)
            nth += 2 if sample else 0


class TestAtEachDurableRecord:
    """Writes to the journal and the agent's own files, ended at each fsync: those of a mode change with services to
    stop.
    """

    @pytest.mark.slow
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_services_run_again_and_the_change_is_finished(
        self, only_standin: MakeAgent, host: StandinHost, trip: str, when: str
    ) -> None:
        bed = Bed(only_standin("a100-sxm4-40gb", labels=LABELS))
        bed.use_services(host)
        bed.agent.start()
        bed.agent.request("off")
        config = "off"
        stopped: list[int] = []
        for nth in range(1, 100):
            bed.agent.stop()
            bed.agent.environment |= {"LD_PRELOAD": trip, "TRIP_AT": str(nth), "TRIP_WHEN": when}
            bed.agent.start()
            config = other(config) if config == "off" else "off"
            bed.agent.label(config=config)
            here = config
            if not await_death(bed.agent, None, lambda: bed.here(here)):  # noqa: B023 -- called at once
                break
            stopped.append(len(SERVICES) - len(bed.running()))
            del bed.agent.environment["LD_PRELOAD"]
            bed.agent.start()
            bed.settled(config)
        assert {0, len(SERVICES)} <= set(stopped), "no cut with services stopped"
        assert len(stopped) >= 6


class TestAtEachOrderToSystemd:
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_what_ran_runs_again(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, host: StandinHost, when: str
    ) -> None:
        bed = Bed(only_standin("a100-sxm4-40gb", labels=LABELS))
        bed.use_services(host)
        bed.agent.start()
        bed.agent.request("off")
        knife = Knife(bed.agent)
        knife.watch(host.standin)
        config = "off"
        for nth in range(1, 2 * len(SERVICES) + 1):
            config = other(config) if config == "off" else "off"
            knife.arm(nth, when)
            bed.agent.label(config=config)
            assert await_death(bed.agent, knife, lambda: False)
            assert len(bed.running()) < len(SERVICES) or nth == 1 or when == "after"
            bed.agent.start()
            bed.settled(config)


class TestARequestedReboot:
    """A process that keeps the GPUs open refuses the reset, so the node reboots: once for each change, with a kill or
    without. The kills are after the pause.
    """

    @pytest.mark.slow
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_it_comes_whenever_the_agent_is_killed(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent, when: str
    ) -> None:
        bed = Bed(only_standin("a100-sxm4-40gb", labels=LABELS))
        bed.agent.environment["WITH_REBOOT"] = "true"
        knife = Knife(bed.agent)
        standin_cluster.standin.control.gate = knife.gate
        bed.agent.start()
        bed.agent.request("off")
        config = "off"
        cuts: list[str] = []
        while True:
            boots = bed.agent.sim.show()["boots"]
            config = other(config) if config == "off" else "off"
            with bed.agent.client():
                bed.agent.until(knife.at_rest, "the event of the change before")
                knife.arm(PAUSED + len(cuts) + 1, when)
                bed.agent.label(config=config)
                dead = await_death(bed.agent, knife, lambda: bed.here(config) and is_reported(knife, 3))  # noqa: B023
                at = knife.seen[-1]
                if dead:
                    bed.agent.start()
                bed.settled(config)
            assert bed.agent.sim.show()["boots"] == boots + 1
            if not dead:
                break
            cuts.append(at)
        assert cuts.count("PATCH node-0") >= 2, cuts


class TestItIsNotRestarted:
    def test_the_node_says_what_is_going_on_and_what_to_give_back(
        self, standin_cluster: StandinCluster, only_standin: MakeAgent
    ) -> None:
        # Killed while everything is paused, in the middle of the GPUs: all is visible on the node for an administrator.
        bed = Bed(only_standin("a100-sxm4-40gb", labels=LABELS))
        bed.at("one")
        bed.agent.sim.inject_fault("kill", nth=2, when="after")
        bed.agent.label(config="two")
        assert await_death(bed.agent, None, lambda: False)
        node = bed.agent.node()
        reported, annotations = bed.agent.status(), node["metadata"]["annotations"]
        assert node["metadata"]["labels"][names.STATE_LABEL] == "pending"
        assert (reported["reason"], reported["config"]) == ("Changing", "two")
        assert "to destroy 1x 1g.5gb, to create 1x 2g.10gb" in reported["message"]
        assert {c["type"]: c["status"] for c in reported["conditions"]}["Progressing"] == "True"
        assert reported["message"] in annotations[names.MESSAGE_ANNOTATION]
        paused = json.loads(annotations[names.PAUSE_ANNOTATION])
        assert paused["former"] == {k: v for k, v in LABELS.items() if v != "false"}
        assert paused["cordoned"]
        assert paused["since"] > 0
        assert any(e["message"] == reported["message"] for e in bed.agent.events())


class TestWhileItWaits:
    def test_killed_while_operands_are_leaving(self, make_agent: MakeAgent) -> None:
        bed = Bed(make_agent("a100-sxm4-40gb", labels=LABELS))
        bed.at("one")
        pod(bed.agent, "plugin-x", "nvidia-device-plugin-daemonset")
        writes = len(bed.agent.writes())
        for _ in range(2):
            bed.agent.label(config="two")
            bed.agent.until(lambda: bed.agent.log().count("waiting for GPU clients"), "the wait")
            bed.agent.kill()
            bed.agent.start()
            bed.agent.until(lambda: bed.agent.labels()[names.STATE_LABEL] == "pending", "pending")
        assert len(bed.agent.writes()) == writes, "nothing is done while a client may be there"
        bed.agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/plugin-x?gracePeriodSeconds=0")
        bed.settled("two")

    def test_killed_while_holders_are_waited_for(self, make_agent: MakeAgent) -> None:
        bed = Bed(make_agent("a100-sxm4-40gb", labels=LABELS))
        bed.agent.patch({"metadata": {"annotations": {names.HOLDERS_ANNOTATION: "wait"}}})
        bed.at("one")
        bed.agent.label(config="off")
        bed.agent.reaches("pending", "off", "WaitingForHolders")
        bed.agent.kill()
        bed.agent.start()
        bed.agent.reaches("pending", "off", "WaitingForHolders")
        bed.agent.label(config="two")
        bed.settled("two")
        bed.untouched()
