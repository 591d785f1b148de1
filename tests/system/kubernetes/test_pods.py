"""Pods that request a profile: their allocation, who keeps them, and the effects of a change of geometry.

The kubelet is a double that speaks the real protocol; containers are real if podman runs (tests/system/containers).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.foundation.driver_calls import VARIABLE
from aliquot.kubernetes.gpu import names
from support.agents import DEPLOY, Agent, MakeAgent, Object
from support.deployed import EVICTIONS, apply
from support.nodedouble import NodeDouble
from system.containers.podman import Podman, python, unusable
from system.kubelet.kubeletdouble import Container, Pod, RunOptions

LIST = """
import pynvml as n
n.nvmlInit()
for g in range(n.nvmlDeviceGetCount()):
    h = n.nvmlDeviceGetHandleByIndex(g)
    print("gpu", n.nvmlDeviceGetUUID(h))
    for i in range(n.nvmlDeviceGetMaxMigDeviceCount(h)):
        try:
            print("mig", n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(h, i)))
        except n.NVMLError:
            pass
"""


@pytest.fixture
def kubelet_root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kl-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class Runs:
    """A runner of containers by podman with the CDI devices that the plugin named. It keeps their output."""

    def __init__(self, podman: Podman) -> None:
        self.podman = podman
        self.messages: dict[str, str] = {}
        self.node: NodeDouble | None = None

    def start(self, pod: Pod, container: Container, options: RunOptions) -> None:
        threading.Thread(target=self._run, args=(pod, container, options)).start()

    def _run(self, pod: Pod, container: Container, options: RunOptions) -> None:
        done = self.podman.run(*container.command, devices=options.cdi_devices, env={"PYTHONPATH": "/opt/nvml"})
        self.messages[pod.name] = done.out + done.err
        if self.node is not None:
            self.node.ended(pod.namespace, pod.name, "Succeeded" if done.code == 0 else "Failed")

    def stop(self, pod: Pod) -> None:
        return


def attached(agent: Agent, root: Path, runner: Runs | None = None) -> NodeDouble:
    """Build the node double of an agent that is not started yet."""

    def request(method: str, path: str, body: object, kind: str) -> tuple[int, object]:
        answer = agent.cluster.request(method, path, body, {"Content-Type": kind})
        return answer.status, answer.body

    agent.arguments = ["--kubelet-dir", str(root)]
    node = NodeDouble(request, agent.name, root, runner)
    if runner is not None:
        runner.node = node
    node.start()
    return node


@pytest.fixture
def node(make_agent: MakeAgent, kubelet_root: Path) -> Iterator[tuple[Agent, NodeDouble]]:
    """Build a node with one GPU in seven instances, and its kubelet. Its agent may evict pods."""
    agent = make_agent("a100-sxm4-40gb")
    apply(agent.cluster, EVICTIONS)
    double = attached(agent, kubelet_root)
    agent.start()
    agent.request("all-1g.5gb")
    agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "7", "seven pieces")
    yield agent, double
    agent.kill()
    double.stop()


def allocatable(agent: Agent) -> dict[str, str]:
    return dict(agent.node()["status"].get("allocatable", {}))


def pod(agent: Agent, name: str, resource: str = "nvidia.com/mig-1g.5gb", **more: object) -> None:
    """Create a pod that requests one device, bound by the scheduler of one node."""
    main: Object = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}}}
    main |= more
    agent.create(
        "pods",
        {"metadata": {"name": name, "labels": {"run": name}}, "spec": {"containers": [main], "restartPolicy": "Never"}},
        "default",
    )


def phase(agent: Agent, name: str) -> str:
    answer = agent.cluster.request("GET", f"/api/v1/namespaces/default/pods/{name}")
    return str(answer.body["status"].get("phase", "")) if answer.status == 200 else "gone"


def test_a_pod_runs_and_sees_exactly_one_mig_device(make_agent: MakeAgent, kubelet_root: Path, tmp_path: Path) -> None:
    # As NVIDIA's documentation verifies it, in a real container.
    if reason := unusable():
        pytest.skip(reason)
    agent = make_agent("a100-sxm4-40gb*2")
    (tmp_path / "podman").mkdir()
    podman = Podman(tmp_path / "podman", cdi=agent.folder / f"{agent.name}.cdi")
    runs = Runs(podman)
    double = attached(agent, kubelet_root, runs)
    try:
        agent.start()
        agent.request("all-balanced")
        agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "4", "allocatable")
        pod(agent, "one", command=[python(), "-c", LIST])
        agent.until(lambda: phase(agent, "one") in ("Succeeded", "Failed"), "the pod to end", 60)
        lines = runs.messages["one"].split("\n")
        assert phase(agent, "one") == "Succeeded", lines
        gpus, migs = [w for w in lines if w.startswith("gpu ")], [w for w in lines if w.startswith("mig ")]
        assert len(gpus) == 1
        assert len(migs) == 1
        known = {
            c["uuid"]
            for gpu in agent.sim.show()["gpus"]
            for i in gpu["instances"]
            for c in i["compute_instances"]
            if i["profile"] == "1g.5gb"
        }
        assert migs[0].removeprefix("mig ") in known
    finally:
        agent.kill()
        double.stop()
        podman.close()


def test_a_pod_that_asks_for_what_is_not_there_waits(node: tuple[Agent, NodeDouble]) -> None:
    # The twin, and the repartition that makes it run.
    agent, _ = node
    pod(agent, "big", "nvidia.com/mig-3g.20gb")
    agent.until(lambda: phase(agent, "big") == "Pending", "pending")
    agent.request("all-3g.20gb")
    agent.until(lambda: phase(agent, "big") == "Running", "running")
    assert allocatable(agent)["nvidia.com/mig-1g.5gb"] == "0"


def test_a_pod_without_a_process_holds_its_instance(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    before = agent.writes()
    reported = agent.request("all-3g.20gb", "failed", "Held")
    assert "pod default/idle (main)" in reported["message"]
    assert agent.writes() == before
    assert agent.deploy() == DEPLOY


def test_wait_ends_when_the_pod_ends(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    agent.patch({"metadata": {"annotations": {names.HOLDERS_ANNOTATION: "wait"}}})
    agent.request("all-3g.20gb", "pending", "WaitingForHolders")
    agent.call("DELETE", "/api/v1/namespaces/default/pods/idle?gracePeriodSeconds=0")
    agent.reaches("success", "all-3g.20gb")


def test_drain_evicts_only_the_holder(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    agent.settings("mig: {strategy: mixed}\nholders: {policy: drain}")
    pod(agent, "idle")
    agent.create(
        "pods", {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}, "default"
    )
    agent.until(lambda: phase(agent, "idle") == phase(agent, "other") == "Running", "running")
    agent.request("all-3g.20gb")
    assert phase(agent, "idle") == "gone"
    assert phase(agent, "other") == "Running"


def test_drain_respects_a_budget_and_says_so(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    agent.settings(
        "mig: {strategy: mixed}\nholders: {policy: drain, drain-seconds: 3}\ntimes: {retry-first-seconds: 60}"
    )
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"run": "idle"}}},
    }
    agent.call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    before = agent.writes()
    agent.label(config="all-3g.20gb")
    agent.until(lambda: "disruption budget keep" in agent.status()["message"], "the budget, while it is waited for")
    assert agent.labels()[names.STATE_LABEL] == "pending"
    reported = agent.reaches("failed", "all-3g.20gb", "NotDrained")
    assert "disruption budget" in reported["message"]
    assert phase(agent, "idle") == "Running"
    assert agent.writes() == before
    assert agent.deploy() == DEPLOY


def test_what_is_idle_stays_in_use_while_a_pod_is_waited_for(make_agent: MakeAgent, kubelet_root: Path) -> None:
    # Two GPUs are to be partitioned again, and a pod is on one of 14 devices. The devices it releases are not allocated
    # again.
    agent = make_agent("a100-sxm4-40gb*2")
    double = attached(agent, kubelet_root)
    agent.start()
    agent.request("all-1g.5gb")
    agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "14", "all devices")
    agent.settings("holders: {policy: wait}")
    pod(agent, "first")
    agent.until(lambda: phase(agent, "first") == "Running", "running")

    agent.label(config="all-7g.40gb")
    agent.reaches("pending", "all-7g.40gb", "WaitingForHolders")
    agent.until(
        lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "13", "the device of the pod to be withdrawn"
    )
    pod(agent, "second")
    agent.until(lambda: phase(agent, "second") == "Running", "another pod to run meanwhile")
    agent.until(lambda: "default/second" in agent.status()["message"], "it to be waited for as well")
    assert len(agent.geometry()[0]) == len(agent.geometry()[1]) == 7
    for name in ("first", "second"):
        agent.cluster.request("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
    agent.reaches("success", "all-7g.40gb")
    double.stop()


def test_drain_without_the_right_to_evict_says_what_gives_it(make_agent: MakeAgent, kubelet_root: Path) -> None:
    # The manifests give the right to evict only if it is requested.
    agent = make_agent("a100-sxm4-40gb")
    double = attached(agent, kubelet_root)
    agent.start()
    agent.settings(
        "mig: {strategy: mixed}\nholders: {policy: drain, drain-seconds: 20}\ntimes: {retry-first-seconds: 5}"
    )
    agent.request("all-1g.5gb")
    agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "7", "seven pieces")
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    before = agent.writes()

    reported = agent.request("all-3g.20gb", "failed", "EvictionOff")
    assert "policy 'drain'" in reported["message"]
    assert "default/idle" in reported["message"]
    assert "migManager.evictions=true" in reported["nextStep"]
    assert "kubectl apply -f deploy/kubernetes/optional/evictions.yaml" in reported["nextStep"]
    assert phase(agent, "idle") == "Running"
    assert agent.writes() == before
    assert agent.deploy() == DEPLOY

    apply(agent.cluster, EVICTIONS)
    agent.reaches("success", "all-3g.20gb")
    assert phase(agent, "idle") == "gone"
    agent.kill()
    double.stop()


def test_only_what_is_in_the_way_is_asked_to_leave(node: tuple[Agent, NodeDouble]) -> None:
    # A pod on an instance that the new geometry keeps stays where it is.
    agent, _ = node
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    text = (
        "version: v1\nmig-configs:\n  want:\n  - devices: all\n    mig-enabled: true\n"
        "    mig-devices: {3g.20gb: 1, 1g.5gb: 1}\n"
    )
    agent.configure("custom", {"config.yaml": text})
    agent.settings("mig: {strategy: mixed, config-map: custom}\nholders: {policy: drain}")
    agent.request("want")
    assert phase(agent, "idle") == "Running"
    assert len(agent.geometry()[0]) == 2


def test_force_ends_the_pod_and_its_processes(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    agent.settings("mig: {strategy: mixed}\nholders: {policy: force, drain-seconds: 2}")
    pod(agent, "idle")
    agent.until(lambda: phase(agent, "idle") == "Running", "running")
    agent.sim.hold(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
    agent.request("all-3g.20gb")
    assert phase(agent, "idle") == "gone"


def test_kubelet_restarts_and_the_node_offers_again(node: tuple[Agent, NodeDouble]) -> None:
    agent, double = node
    double.kubelet.restart()
    agent.until(lambda: double.kubelet.allocatable.get("nvidia.com/mig-1g.5gb") == 7, "offered again")


def test_a_xid_withdraws_the_device_within_seconds(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    instance = agent.sim.show()["gpus"][0]["instances"][2]["id"]
    agent.sim.inject_fault("xid", gpu=0, instance=str(instance), code=79)
    agent.until(lambda: allocatable(agent)["nvidia.com/mig-1g.5gb"] == "6", "one less")


def test_single_offers_the_pieces_as_gpus(make_agent: MakeAgent, kubelet_root: Path) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.environment["MIG_STRATEGY"] = "single"
    double = attached(agent, kubelet_root)
    try:
        agent.start()
        agent.request("all-1g.5gb")
        agent.until(lambda: allocatable(agent).get("nvidia.com/gpu") == "7", "seven")
        labels = agent.labels()
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
        assert labels["nvidia.com/gpu.count"] == "7"
        reported = agent.request("all-balanced", "failed", "LabelsWouldBeInvalid")
        assert "mixed" in reported["nextStep"]
    finally:
        agent.kill()
        double.stop()


def test_pods_get_devices_while_the_driver_hangs(make_agent: MakeAgent, kubelet_root: Path) -> None:
    # Devices offered to the kubelet stay offered, and are allocated. A kubelet that starts again gets them again.
    agent = make_agent("a100-sxm4-40gb")
    agent.environment |= {VARIABLE: "1", "ALIQUOT_BACKEND": "shim"}
    double = attached(agent, kubelet_root)
    try:
        agent.start()
        agent.request("all-1g.5gb")
        agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "7", "seven devices")
        agent.sim.inject_fault("hang")
        agent.reaches("failed", "all-1g.5gb", "DriverHangs")
        pod(agent, "one")
        agent.until(lambda: phase(agent, "one") == "Running", "the pod to run", 10)
        double.kubelet.restart()
        agent.until(lambda: double.kubelet.allocatable.get("nvidia.com/mig-1g.5gb") == 7, "seven devices again", 20)
        pod(agent, "two")
        agent.until(lambda: phase(agent, "two") == "Running", "the second pod to run", 20)
        assert agent.status()["reason"] == "DriverHangs"
        agent.sim.inject_fault("none")
        agent.reaches("success", "all-1g.5gb")
        assert {phase(agent, "one"), phase(agent, "two")} == {"Running"}
    finally:
        agent.kill()
        double.stop()
