"""An agent with two roles in one process, on a node with a MIG GPU for containers and a vGPU GPU for VMs.

Each role does its work over the session with the driver that both share.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from aliquot.cli.main import main
from aliquot.foundation.driver_calls import VARIABLE
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.node_agent import agent_run
from aliquot.kubernetes.node_agent.agent_run import RoleStart
from support.agents import MIXED, Agent
from support.cluster import StandinCluster
from support.devicesagent import DevicesAgent, MakeDevices
from system.kubelet.kubeletdouble import Container, Kubelet, Pod
from system.kubernetes.test_devices_driver_pod import play
from system.kubernetes.test_dra_claims import HALF, Played

A100, A2, ONE = "0000:01:00.0", "0000:02:00.0", "0000:02:00.4"
SEVEN = [f"1g.5gb@{n}" for n in range(7)]
HANGS_S, SMALL = 1.0, "nvidia.com/mig-1g.5gb"


@pytest.fixture
def agent(devices_on_standin: MakeDevices) -> DevicesAgent:
    """Build a node whose agent has both roles. It has all rights: the account of each DaemonSet has those of one."""
    made = devices_on_standin("a100-sxm4-40gb:mdev,a2:mdev")
    made.environment |= MIXED
    made.arguments = ["--labels", *made.arguments]
    made.config = made.cluster.kubeconfig()
    return made


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    root = Path(tempfile.mkdtemp(prefix="kl-"))  # a unix socket's path has 107 bytes
    found = Kubelet(root)
    found.start()
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(root, ignore_errors=True)


def state(agent: DevicesAgent) -> tuple[str, str]:
    """Return the label role's state and the VM role's."""
    return agent.labels().get(names.STATE_LABEL, ""), agent.standing().get("state", "")


def test_both_roles_do_their_work(agent: DevicesAgent) -> None:
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.until(lambda: state(agent) == ("success", "working"), "both roles to be done")
    assert agent.geometry()[0] == SEVEN
    assert agent.vgpus() == {ONE: "NVIDIA A2-4Q"}
    agent.until(lambda: agent.page("/readyz") == (200, "VM agent: ok\nlabel agent: ok\n"), "ready")
    pages = agent.page("/metrics")[1]
    families = re.findall(r"^# TYPE (\S+)", pages, re.M)
    assert len(families) == len(set(families)), "no family is there twice"
    assert {"aliquot_agent_state", "aliquot_devices_state"} <= set(families)
    assert len(re.findall(r"^aliquot_gpu_info\{", pages, re.M)) == 2, "each GPU is there once"


def test_a_hang_is_reported_once_and_both_roles_recover_and_end(agent: DevicesAgent) -> None:
    agent.environment[VARIABLE] = str(HANGS_S)
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.until(lambda: state(agent) == ("success", "working"), "both roles to be done")
    agent.sim.inject_fault("hang")
    agent.until(lambda: state(agent) == ("failed", "waiting"), "both roles to report it")
    status, text = agent.page("/readyz")
    assert (status, text.count("the driver has not returned from")) == (503, 1)
    agent.until(lambda: hangs(agent), "the event")
    agent.sim.inject_fault("none")
    agent.until(lambda: state(agent) == ("success", "working"), "both roles to recover")
    agent.until(lambda: agent.page("/readyz")[0] == 200, "ready")
    assert hangs(agent) == ["Warning"]
    agent.sim.inject_fault("hang")
    agent.until(lambda: state(agent) == ("failed", "waiting"), "the next hang")
    begun = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - begun < 20


def hangs(agent: DevicesAgent) -> list[str]:
    return [event["type"] for event in agent.events() if event["reason"] == "DriverHangs"]


def test_a_device_of_one_role_is_refused_to_the_other_by_name(agent: DevicesAgent, kubelet: Kubelet) -> None:
    agent.arguments[-1] = str(kubelet.directory.parent)
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.until(lambda: kubelet.allocatable.get(SMALL) == 7, "seven instances for kubelet")
    train = run(agent, kubelet, "train", SMALL)
    agent.until(lambda: agent.one("sriovgpudevices", A100), "the GPU's object")
    agent.set("sriovgpudevices", A100, {"enabled": True})
    agent.until(lambda: agent.condition("sriovgpudevices", A100).get("reason") == "Held", "the VM role to refuse")
    assert "pod default/train (main)" in agent.condition("sriovgpudevices", A100)["message"]
    assert agent.geometry()[0] == SEVEN

    kubelet.remove(train)
    agent.call("DELETE", "/api/v1/namespaces/default/pods/train?gracePeriodSeconds=0")
    agent.until(lambda: agent.status_of("sriovgpudevices", A100).get("vfAddresses"), "the A100's functions")
    function = agent.status_of("sriovgpudevices", A100)["vfAddresses"][0]
    agent.until(lambda: agent.status_of("vgpudevices", function).get("availableTypes"), "types")
    (backed,) = agent.status_of("vgpudevices", function)["availableTypes"]
    agent.carrying(function, backed)
    agent.label(config="all-disabled")
    agent.until(lambda: Agent.status(agent).get("config") == "all-disabled", "the label role to answer")
    agent.until(lambda: Agent.status(agent).get("reason") == "Held", "the label role to refuse")
    assert f"held by vgpu {function} ({backed})" in Agent.status(agent)["message"]
    assert agent.geometry()[0] == SEVEN


def run(agent: DevicesAgent, kubelet: Kubelet, name: str, resource: str) -> Pod:
    """Run a pod with one device of a resource."""
    spec = {"nodeName": agent.name, "containers": [{"name": "main", "image": "none"}]}
    agent.create("pods", {"metadata": {"name": name}, "spec": spec}, "default")
    pod = Pod(name, (Container("main", {resource: 1}),))
    kubelet.admit(pod)
    return pod


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ([], ["--labels"]),
        (["--labels"], ["--labels"]),
        (["--vgpus"], ["--vgpus"]),
        (["--devices"], ["--devices"]),
        (["--claims"], ["--claims"]),
        (["--labels", "--devices"], ["--devices", "--labels"]),
        (["--devices", "--claims"], ["--devices", "--claims"]),
    ],
    ids=" ".join,
)
def test_a_command_line_has_the_roles_that_it_names(
    words: list[str], flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command of an error, and the pods whose usage counts, follow from the roles of the process.
    found: list[str] = []

    def record(starts: Sequence[RoleStart]) -> int:
        found.extend(start.role.flag for start in starts)
        return 0

    monkeypatch.setattr(agent_run, "run_agent", record)
    assert main(["agent", "--node-name", "n1", *words]) == 0
    assert found == flags


@pytest.mark.parametrize("more", [[], ["--devices"]], ids=["alone", "with devices"])
def test_labels_and_claims_are_refused_in_one_process(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--labels", "--claims", *more]) == 2
    shown = capsys.readouterr().err
    assert "--labels and --claims give the same GPUs to pods in two ways" in shown
    assert "aliquot.dev/allocation" in shown


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--vgpus", "--devices"], "--vgpus and --devices change the same GPUs"),
        (["--vgpus", "--labels"], "--vgpus and --labels change the same GPUs"),
        (["--devices", "-d", "A2-8Q"], "--default-vgpu-config needs --vgpus"),
        (["--labels", "--dra-vm", "all"], "--dra-vm needs --claims"),
        (["--labels", "--all-devices"], "--all-devices needs --devices"),
        (["--claims", "--devices", "--dra-vm", "all"], "--dra-vm and --devices give the same GPUs to VMs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_role_that_another_one_excludes_is_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", *words]) == 2
    shown = capsys.readouterr().err
    assert reason in shown
    assert "--node-name NAME" in shown


def test_a_claim_is_prepared_beside_vms_and_its_device_stays(agent: DevicesAgent) -> None:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        played = Played(agent, Path(folder))
        pods = Kubelet(Path(folder) / "kubelet")
        pods.start()
        try:
            agent.arguments = ["--claims", *agent.arguments]
            played.start()
            assert played.prepare(played.allocate("train", HALF)).error == ""
            agent.until(lambda: agent.one("sriovgpudevices", A100), "the GPU's object")
            agent.set("sriovgpudevices", A100, {"enabled": True})
            agent.until(lambda: agent.condition("sriovgpudevices", A100).get("reason") == "Held", "the refusal")
            assert "claim default/train" in agent.condition("sriovgpudevices", A100)["message"]
            assert agent.geometry()[0] == ["3g.20gb@4"]
            assert "VM agent: ok\nclaim agent: " in agent.page("/readyz")[1]
            assert agent.stop() == 0
        finally:
            pods.stop()


def test_both_roles_wait_for_the_drivers_pod_and_go_through_it(
    agent: DevicesAgent, standin_cluster: StandinCluster
) -> None:
    play(standin_cluster, agent, files=())
    agent.start()
    agent.until(lambda: agent.standing().get("reason") == "DriverInstalling", "the VM role's reason")
    agent.label(config="all-1g.5gb")
    agent.until(lambda: Agent.status(agent).get("reason") == "NoDriver", "the label role's reason")
    assert agent.writes() == []
    play(standin_cluster, agent)
    agent.until(lambda: state(agent) == ("success", "working"), "both roles to be done")
    assert agent.geometry()[0] == SEVEN
    assert "nvidia-smi" in {command.words[0] for command in standin_cluster.standin.execs.asked}
