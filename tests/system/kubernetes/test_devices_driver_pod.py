"""The devices agent with the GPU driver in a pod of its own: the machine has no part of the driver."""

from __future__ import annotations

from pathlib import Path

from aliquot.sim import lifecycle as control
from support.cluster import StandinCluster
from support.devicesagent import DevicesAgent, MakeDevices
from support.driverpods import NAMESPACE, below, driver_pod

A2 = "0000:01:00.0"
ONE, TWO = "0000:01:00.4", "0000:01:00.5"
POD = "nvidia-driver-node-0"


def play(cluster: StandinCluster, agent: DevicesAgent, *, files: tuple[str, ...] = ("/tmp/ready",)) -> None:
    """Simulate the driver's pod of the agent's node, with the simulated machine's own programs in it."""
    cluster.namespace(NAMESPACE)
    cluster.apply(driver_pod(agent.name))
    folder = Path(control.folder(agent.state, "machine")) / "driver"
    cluster.standin.execs.play(POD, below(folder, files), NAMESPACE)


def test_everything_goes_through_the_pod(standin_cluster: StandinCluster, devices_on_standin: MakeDevices) -> None:
    agent = devices_on_standin("a2:vfio")
    play(standin_cluster, agent)
    agent.start()
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.set("vgpudevices", ONE, {"enabled": False})
    agent.until(lambda: agent.vgpus() == {}, "it to go")
    agent.set("sriovgpudevices", A2, {"enabled": False})
    agent.until(lambda: agent.all("vgpudevices") == {}, "all to go")
    words = {command.words[0] for command in standin_cluster.standin.execs.asked}
    assert {"test", "nvidia-smi", "/usr/lib/nvidia/sriov-manage"} <= words


def test_mig_goes_through_the_pod(standin_cluster: StandinCluster, devices_on_standin: MakeDevices) -> None:
    agent = devices_on_standin("a100-sxm4-40gb:mdev")
    play(standin_cluster, agent)
    agent.start("--driver", "pod")
    agent.until(lambda: agent.one("sriovgpudevices", A2), "the GPU's object")
    agent.set("sriovgpudevices", A2, {"enabled": True})
    agent.until(lambda: agent.one("migconfigurations", A2), "the MigConfiguration")
    rows = agent.one("migconfigurations", A2)["spec"]["profileSpec"]
    rows = [{**row, "requested": 2 if row["name"] == "MIG 1g.5gb" else 0} for row in rows]
    agent.set("migconfigurations", A2, {"enabled": True, "profileSpec": rows})
    agent.until(lambda: agent.status_of("migconfigurations", A2).get("status") == "synced", "synced")
    assert [i["profile"] for i in agent.sim.show()["gpus"][0]["instances"]] == ["1g.5gb", "1g.5gb"]


def test_a_pod_that_is_not_ready_is_waited_for(
    standin_cluster: StandinCluster, devices_on_standin: MakeDevices
) -> None:
    # Objects that need no driver exist anyway. Each object reports what is missing.
    agent = devices_on_standin("a2:mdev")
    play(standin_cluster, agent, files=())
    agent.start()
    agent.until(lambda: agent.one("sriovgpudevices", A2), "the GPU's object")
    agent.until(lambda: agent.standing().get("reason") == "DriverInstalling", "the reason")
    assert agent.standing()["state"] == "waiting"
    agent.set("sriovgpudevices", A2, {"enabled": True})
    agent.until(
        lambda: agent.condition("sriovgpudevices", A2).get("status") == "Unknown", "the condition of the object"
    )
    assert "/tmp/ready does not exist" in agent.condition("sriovgpudevices", A2)["message"]
    assert agent.writes() == []
    play(standin_cluster, agent)
    agent.until(lambda: len(agent.all("vgpudevices")) == 16, "the functions requested meanwhile")
    agent.until(lambda: agent.standing()["state"] == "working", "working")


def test_a_driver_that_is_replaced_disturbs_nothing(
    standin_cluster: StandinCluster, devices_on_standin: MakeDevices
) -> None:
    agent = devices_on_standin("a2:vfio")
    play(standin_cluster, agent)
    agent.start()
    agent.enabled(A2)
    agent.carrying(ONE)
    calls = len(agent.writes())
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{POD}?gracePeriodSeconds=0")
    standin_cluster.standin.execs.stop(POD, NAMESPACE)
    play(standin_cluster, agent)
    agent.at_rest()
    assert agent.configured(ONE) == "NVIDIA A2-4Q"
    assert len(agent.writes()) == calls
    agent.carrying(TWO)


def test_where_a_pod_is_demanded_this_machine_is_not_used(
    standin_cluster: StandinCluster, devices_on_standin: MakeDevices
) -> None:
    agent = devices_on_standin("a2:mdev")
    agent.start("--driver", "pod")
    agent.until(lambda: agent.standing().get("reason") == "NoDriverPod", "the reason")
    assert "app=nvidia-driver-daemonset" in agent.standing()["sentence"]
    assert agent.sim.show()["sessions"] == []
