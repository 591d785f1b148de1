"""Operation of clusters: reboots, upgrades, restarts, removed nodes, drivers that disappear and return, killed agents,
changed layouts.

VMs keep running, or return with the same devices.
"""

from __future__ import annotations

import pytest

from support.kubevirt.players import SETTINGS
from system.harvester.conftest import MakeSite
from system.harvester.site import JSON, Site

ONE, TWO = "harvester-82cd7", "harvester-kgd9c"
A100, A2 = f"{ONE}-000004000", f"{TWO}-000008000"
Q4, RESOURCE = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"


def enable(site: Site, gpu: str, functions: int = 16) -> list[str]:
    """Enable a GPU's virtual functions and return their objects' names."""
    site.until(lambda: site.seen("sriovgpudevices", gpu), f"the object of {gpu}")
    site.patch("sriovgpudevice", gpu, enabled=True)
    site.until(lambda: len(_names(site, gpu)) == functions, "the functions")
    names = _names(site, gpu)
    site.until(lambda: all(site.seen("vgpudevices", name) for name in names), "their objects")
    return names


def _names(site: Site, gpu: str) -> list[str]:
    return list(site.seen("sriovgpudevices", gpu).get("status", {}).get("vGPUDevices", []))


def carry(site: Site, name: str, kind: str) -> JSON:
    """Give a function a vGPU and return its object."""
    site.until(lambda: kind in site.seen("vgpudevices", name)["status"].get("availableTypes", {}), f"{kind} to choose")
    site.patch("vgpudevice", name, enabled=True, vGPUTypeName=kind)
    site.wait("vgpudevice", name, "{.status.vGPUStatus}=vGPUConfigured")
    return site.get("vgpudevice", name)


def layout(site: Site, counts: dict[int, int]) -> list[JSON]:
    rows = site.seen("migconfigurations", A100)["spec"]["profileSpec"]
    return [{**row, "requested": counts.get(row["id"], 0)} for row in rows]


def cut(site: Site, counts: dict[int, int]) -> None:
    site.until(lambda: site.seen("migconfigurations", A100), "the MigConfiguration")
    site.patch("migconfiguration", A100, enabled=True, profileSpec=layout(site, counts))
    site.wait("migconfiguration", A100, "{.status.status}=synced")


@pytest.mark.slow
def test_a_node_reboots_and_another_leaves_the_cluster(site_on_standin: MakeSite) -> None:
    site = site_on_standin({ONE: "a100-sxm4-40gb:mdev:bus04", TWO: "a2:vfio:bus08"}, pods=False)
    carry(site, enable(site, A2)[0], Q4)
    assert site.count("pcideviceclaims") == 1
    site.agents[TWO].kill()
    site.environment.machines.pop(TWO).close()
    site.kubectl("delete", "node", TWO)
    name = enable(site, A100)[0]
    cut(site, {9: 1, 14: 1})
    before = carry(site, name, "GRID A100X-3-20C")
    resource = "nvidia.com/GRID_A100X-3-20C"
    site.until(lambda: site.offered(ONE, resource) == "1", "it to be offered")
    site.create("desk", [resource])
    launcher = site.runs("desk")
    begun = reboot(site, ONE)
    site.until(lambda: site.environment.launchers("desk") not in ([], [launcher]), "the machine to run again")
    assert site.environment.launcher("desk").environment == launcher.environment, "the same mdev"
    assert site.get("vgpudevice", name)["status"]["uuid"] == before["status"]["uuid"]
    site.wait("migconfiguration", A100, "{.status.status}=synced")
    assert order(begun, site) == ["SriovManage", "CreateGpuInstance", "SysfsWrite"], "functions, instances, then vGPUs"
    the_other_node_s_objects_are_gone(site)


def reboot(site: Site, node: str) -> int:
    """Reboot the node, and start everything on it again. Return how many calls its hardware had seen before."""
    agent = site.agents[node]
    agent.kill()
    agent.sim.reboot()
    site.environment.lose(node)
    assert agent.vgpus() == {}
    site.environment.machines[node].restart_kubelet()
    begun = len(agent.sim.calls())
    agent.start()
    return begun


def order(begun: int, site: Site) -> list[str]:
    """Return the kinds of calls that changed something since, each once, in the order of their last call."""
    calls = [call["call"] for call in site.agents[ONE].sim.calls()[begun:] if call.get("write") and not call["rc"]]
    short = [each.removeprefix("Device").removesuffix("WithPlacement") for each in calls]
    wanted = ("SriovManage", "CreateGpuInstance", "SysfsWrite")
    return sorted(set(short) & set(wanted), key=lambda each: len(short) - short[::-1].index(each))


def the_other_node_s_objects_are_gone(site: Site) -> None:
    """Wait until the objects of the removed node are gone. Claims are too, although no agent releases them, and so is
    what KubeVirt permitted for only that node.
    """
    kinds = ("sriovgpudevices", "vgpudevices", "pcidevices", "pcideviceclaims", "migconfigurations")
    site.until(lambda: not any(site.agents[TWO].all(kind) for kind in kinds), "the removed node's objects to go")
    assert site.agents[ONE].all("vgpudevices")
    site.until(lambda: RESOURCE not in str(site.cluster.get(SETTINGS)["items"]), "KubeVirt's entry to go")


@pytest.mark.slow
def test_our_own_upgrade_reaches_neither_hardware_nor_machines(make_site: MakeSite) -> None:
    site = make_site({ONE: "a2:mdev:bus04", TWO: "a2:vfio:bus08"}, pods=False)
    for gpu in (A100, A2):
        for name in enable(site, gpu)[:2]:
            carry(site, name, Q4)
    site.until(lambda: [site.offered(node, RESOURCE) for node in (ONE, TWO)] == ["2", "2"], "two on each node")
    site.create("first", [RESOURCE])
    site.create("second", [RESOURCE], selector={"kubernetes.io/hostname": TWO})
    machines = [site.runs(name) for name in ("first", "second")]
    for name in ("first", "second"):
        site.until(lambda: site.has(name), f"what {name} has")  # noqa: B023 -- called at once
    at_rest(site)
    before = {node: (agent.writes(), agent.versions()) for node, agent in site.agents.items()}
    everything_is_replaced(site)
    at_rest(site)
    assert before == {node: (agent.writes(), agent.versions()) for node, agent in site.agents.items()}
    assert [site.environment.launcher(name) for name in ("first", "second")] == machines
    for node in (ONE, TWO):
        site.environment.machines[node].restart_kubelet()
    site.until(
        lambda: [site.offered(node, RESOURCE) for node in (ONE, TWO)] == ["2", "2"], "kubelets to know them again"
    )
    site.create("third", [RESOURCE])
    site.create("fourth", [RESOURCE])
    ids = {value for name in ("third", "fourth") for value in site.runs(name).environment.values()}
    assert len(ids | {value for each in machines for value in each.environment.values()}) == 4, "no vGPU twice"


def at_rest(site: Site) -> None:
    for agent in site.agents.values():
        agent.at_rest(1)


def everything_is_replaced(site: Site) -> None:
    """Replace agents and controller. Requests wait meanwhile, VMs keep running."""
    assert site.controller is not None
    for agent in site.agents.values():
        assert agent.stop() == 0
    site.controller.stop()
    first = next(iter(site.agents[ONE].all("vgpudevices")))
    assert "failed calling webhook" in site.refused("vgpudevice", first, enabled=False)
    site.create("unasked", [RESOURCE], strategy="Halted")
    site.remove("unasked")
    site.controller.start()
    for agent in site.agents.values():
        agent.start()
        agent.until(lambda: agent.observations() >= 2, "two looks of the new agent")  # noqa: B023 -- called at once


@pytest.mark.slow
def test_an_agent_that_is_killed_at_every_step(site_on_standin: MakeSite) -> None:
    # Each action of a user is followed at once by SIGKILL and another agent.
    site = site_on_standin({TWO: "a2:vfio:bus08"}, pods=False)
    agent = site.agents[TWO]

    def killed() -> None:
        agent.kill()
        agent.start()

    site.until(lambda: site.seen("sriovgpudevices", A2), "the GPU's object")
    site.patch("sriovgpudevice", A2, enabled=True)
    killed()
    site.until(lambda: len(_names(site, A2)) == 16, "the functions")
    name = _names(site, A2)[0]
    site.until(lambda: site.seen("vgpudevices", name)["status"].get("availableTypes"), "types")
    site.patch("vgpudevice", name, enabled=True, vGPUTypeName=Q4)
    killed()
    site.wait("vgpudevice", name, "{.status.vGPUStatus}=vGPUConfigured")
    site.until(lambda: site.offered(TWO, RESOURCE) == "1", "it to be offered")
    site.create("desk", [RESOURCE])
    killed()
    launcher = site.runs("desk")
    killed()
    site.until(lambda: site.has("desk") == {"hostdevices": {RESOURCE: [name]}}, "what it has")
    assert site.environment.launcher("desk") == launcher
    site.halt("desk")
    killed()
    site.remove("desk")
    site.patch("vgpudevice", name, enabled=False)
    killed()
    site.until(lambda: agent.vgpus() == {} and site.count("pcideviceclaims") == 0, "the vGPU and its claim to go")
    site.patch("sriovgpudevice", A2, enabled=False)
    killed()
    site.until(lambda: site.count("vgpudevices") == 0, "the functions to go")
    assert agent.sim.show()["gpus"][0]["functions"] == 0


@pytest.mark.slow
def test_a_driver_that_comes_late_and_is_replaced_under_machines(site_on_standin: MakeSite) -> None:
    site = site_on_standin({})
    agent = site.add(TWO, "a2:vfio:bus08", start=False)
    site.driver(TWO, files=())
    agent.start()
    site.until(lambda: site.seen("sriovgpudevices", A2), "the GPU's object")
    site.patch("sriovgpudevice", A2, enabled=True)
    site.wait("sriovgpudevice", A2, "condition=Ready=Unknown")
    answer = site.kubectl("get", "sriovgpudevice", A2, "-o", "jsonpath={.status.conditions}")
    assert "/tmp/ready does not exist" in answer
    assert agent.writes() == []
    site.driver(TWO)
    site.wait("sriovgpudevice", A2, "condition=Ready")
    site.until(lambda: site.count("vgpudevices") == 16, "the functions requested meanwhile")
    name = _names(site, A2)[0]
    carry(site, name, Q4)
    site.until(lambda: site.offered(TWO, RESOURCE) == "1", "it to be offered")
    site.create("desk", [RESOURCE])
    launcher, calls = site.runs("desk"), len(agent.writes())
    site.no_driver(TWO)
    site.driver(TWO, name="nvidia-driver-daemonset-later")
    agent.at_rest(1)
    assert (len(agent.writes()), agent.configured("0000:08:00.4")) == (calls, Q4)
    assert site.environment.launcher("desk") == launcher
    site.halt("desk")
    site.remove("desk")
    site.patch("vgpudevice", name, enabled=False)
    site.until(lambda: agent.vgpus() == {}, "it to go, through the new pod")


@pytest.mark.slow
def test_a_user_partitions_the_gpu_by_hand(site_on_standin: MakeSite) -> None:
    site = site_on_standin({ONE: "a100-sxm4-40gb:vfio:bus04"}, pods=False)
    agent = site.agents[ONE]
    enable(site, A100)
    cut(site, {9: 1, 19: 2})
    gone = next(i for i in agent.sim.show()["gpus"][0]["instances"] if i["profile"].startswith("3g"))
    agent.sim.destroy(0, gone["id"])
    agent.sim.create(0, "2g.10gb")
    by_hand = len(agent.writes())
    site.wait("migconfiguration", A100, "{.status.status}=out-of-sync")
    site.until(lambda: len(site.seen("migconfigurations", A100)["status"]["differences"]) == 2, "both differences")
    reported = site.get("migconfiguration", A100)["status"]
    assert reported["differences"][0] == "1 of 1 MIG 3g.20gb is missing"
    assert "2g.10gb" in reported["differences"][1]
    assert all(each in reported["message"] for each in reported["differences"])
    row = next(line for line in site.kubectl("get", "migconfigurations").splitlines() if A100 in line)
    assert "out-of-sync" in row
    assert "must be disabled" in site.refused("migconfiguration", A100, profileSpec=layout(site, {19: 1}))
    agent.at_rest(1)
    assert len(agent.writes()) == by_hand, "nothing is touched"
    site.patch("migconfiguration", A100, enabled=False)
    site.wait("migconfiguration", A100, "{.status.status}=disabled")
    assert [i.partition("@")[0] for i in agent.geometry()[0]] == ["2g.10gb"], "an instance of another tool is kept"
    site.patch("migconfiguration", A100, enabled=True, profileSpec=layout(site, {9: 1, 19: 2}))
    site.wait("migconfiguration", A100, "{.status.status}=out-of-sync")
    assert [i.partition("@")[0] for i in agent.geometry()[0]] == ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
    step = site.get("migconfiguration", A100)["status"]["message"].partition("| next: ")[2].partition(" (to destroy")[0]
    site.typed(step)
    site.patch("migconfiguration", A100, enabled=False)
    site.wait("migconfiguration", A100, "{.status.status}=disabled")
    cut(site, {9: 1, 19: 2})
    assert [i.partition("@")[0] for i in agent.geometry()[0]] == ["1g.5gb", "1g.5gb", "3g.20gb"]
