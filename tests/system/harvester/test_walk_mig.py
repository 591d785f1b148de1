"""The MIG document's test plan, steps 1 to 7, by kubectl on an A100: a MIG-backed vGPU in a VM, and all the way back.

A second node has a GPU with the same address.
"""

from __future__ import annotations

import pytest

from support.kubevirt.players import SETTINGS
from system.harvester import samples
from system.harvester.conftest import MakeSite
from system.harvester.samples import comparable, sample
from system.harvester.site import JSON, Site

NODE, OTHER = "dell-190-tink-system", "dell-191-tink-system"
GPU, ADDRESS = f"{NODE}-000004000", "0000:04:00.0"


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "pods"), [("mdev", True), ("vfio", False)])
def test_steps_one_to_seven_and_back(make_site: MakeSite, kernel: str, pods: bool) -> None:
    site = make_site(dict.fromkeys((NODE, OTHER), f"a100-sxm4-40gb:{kernel}:bus04"), pods=pods)
    step_one_to_three_gpus_and_drivers(site)
    step_four_enable(site)
    step_five_a_layout(site)
    name, kind = step_six_types_of_the_instances(site)
    step_seven_a_machine(site, name, kind, kernel)
    back_and_another_layout(site, name)
    back_to_nothing(site)


def step_one_to_three_gpus_and_drivers(site: Site) -> None:
    for node in (NODE, OTHER):
        agent = site.agents[node]
        site.until(lambda: agent.ready("sriovgpudevices", ADDRESS), f"the GPU of {node}")  # noqa: B023 -- called at once
        site.until(lambda: agent.standing().get("state") == "working", f"the agent of {node}")  # noqa: B023
    label = "sriovgpu.harvesterhci.io/driver-needed=true"
    assert {row["metadata"]["name"] for row in site.all("node", "-l", label)} == {NODE, OTHER}
    assert site.all("migconfiguration") == []


def step_four_enable(site: Site) -> None:
    """Enable the GPU. The MigConfiguration appears and requests nothing."""
    site.patch("sriovgpudevice", GPU, enabled=True)
    site.until(lambda: site.count("migconfigurations"), "the MigConfiguration")
    empty = sample(samples.MIG)
    empty["spec"]["enabled"] = False
    for row in empty["spec"]["profileSpec"]:
        row["requested"] = 0
    for row in empty["status"]["profileStatus"]:
        row["available"] = row["total"]
        row.pop("vGPUID", None)
    empty["status"]["status"] = ""
    assert comparable(site.get("migconfiguration", GPU)) == empty


def step_five_a_layout(site: Site) -> None:
    """Request six and one, as the document has it. Impossible requests are refused with the reason, without change."""
    answer = site.refused("migconfiguration", GPU, enabled=True, profileSpec=asked(site, {19: 6, 20: 2}))
    assert "1g.5gb+me" in answer
    assert site.get("migconfiguration", GPU)["spec"]["enabled"] is False
    site.patch("migconfiguration", GPU, enabled=True, profileSpec=asked(site, {19: 6, 20: 1}))
    site.wait("migconfiguration", GPU, "{.status.status}=synced")
    assert comparable(site.get("migconfiguration", GPU)) == sample(samples.MIG)
    answer = site.refused("migconfiguration", GPU, profileSpec=asked(site, {19: 5, 20: 1}))
    assert f"{GPU} is synced: it must be disabled before its profileSpec is changed" in answer
    assert len(site.all("migconfiguration")) == 1
    assert site.agents[OTHER].writes() == [], "the other node's GPU has the same address and is another"


def asked(site: Site, counts: dict[int, int]) -> list[JSON]:
    rows = site.get("migconfiguration", GPU)["spec"]["profileSpec"]
    return [{**row, "requested": counts.get(row["id"], 0)} for row in rows]


def step_six_types_of_the_instances(site: Site) -> tuple[str, str]:
    """Check that functions offer the types of existing instances, and no others. Configure the first one, and return
    its name and type.
    """
    name = site.get("sriovgpudevice", GPU)["status"]["vGPUDevices"][0]
    site.until(lambda: types(site, name), "types")
    assert {kind.rpartition("-")[0] for kind in types(site, name)} == {"GRID A100X-1"}, types(site, name)
    kind = next(each for each in types(site, name) if each.endswith("-1-5C"))
    site.patch("vgpudevice", name, enabled=True, vGPUTypeName=kind)
    site.wait("vgpudevice", name, "{.status.vGPUStatus}=vGPUConfigured")
    return name, kind


def types(site: Site, name: str) -> list[str]:
    return sorted(site.seen("vgpudevices", name).get("status", {}).get("availableTypes", {}))


def step_seven_a_machine(site: Site, name: str, kind: str, kernel: str) -> None:
    resource = f"nvidia.com/{kind.replace(' ', '_')}"
    site.until(lambda: site.offered(NODE, resource) == "1", "kubelet to offer it")
    site.until(lambda: resource in str(site.cluster.get(SETTINGS)), "KubeVirt to permit it")
    site.create("desk", [resource])
    launcher = site.runs("desk")
    device = site.get("vgpudevice", name)
    prefix = "MDEV_PCI_RESOURCE" if kernel == "mdev" else "PCI_RESOURCE"
    wanted = device["status"]["uuid"] if kernel == "mdev" else device["spec"]["address"]
    assert launcher.environment == {f"{prefix}_{resource.upper().replace('/', '_').replace('.', '_')}": wanted}
    files = ("/dev/vfio/vfio", f"/dev/vfio/{site.group(NODE, wanted)}")
    assert set(launcher.devices) == {(path, path, "mrw") for path in files}
    field = "gpus" if kernel == "mdev" else "hostdevices"
    site.until(lambda: site.has("desk") == {field: {resource: [name]}}, f"what it has: {site.has('desk')}")


def back_and_another_layout(site: Site, name: str) -> None:
    """Remove the layout in the document's order, which is the only accepted one. Then apply another layout of the same
    GPU.
    """
    answer = site.refused("migconfiguration", GPU, enabled=False)
    assert f"cannot disable {GPU} while vGPU {name} is enabled" in answer
    assert f"{name} is in use with VM desk" in site.refused("vgpudevice", name, enabled=False)
    site.halt("desk")
    site.until(lambda: name in str(site.environment.machine("desk")["spec"]), "the machine to name what it had")
    assert f"{name} is in use with VM desk" in site.refused("vgpudevice", name, enabled=False), "it is to have it again"
    bare = {"template": {"spec": {"domain": {"devices": {"gpus": None, "hostDevices": None}}}}}
    site.patch("virtualmachine", "desk", **bare)
    site.patch("vgpudevice", name, enabled=False)
    site.until(lambda: site.agents[NODE].vgpus() == {}, "the vGPU to go")
    site.patch("migconfiguration", GPU, enabled=False)
    site.wait("migconfiguration", GPU, "{.status.status}=disabled")
    assert site.agents[NODE].geometry() == [[]]
    site.patch("migconfiguration", GPU, enabled=True, profileSpec=asked(site, {9: 1, 14: 1, 19: 2}))
    site.wait("migconfiguration", GPU, "{.status.status}=synced")
    assert sorted(i.partition("@")[0] for i in site.agents[NODE].geometry()[0]) == [
        "1g.5gb",
        "1g.5gb",
        "2g.10gb",
        "3g.20gb",
    ]
    site.until(
        lambda: {"GRID A100X-1-5C", "GRID A100X-2-10C", "GRID A100X-3-20C"} <= set(types(site, name)), "their types"
    )


def back_to_nothing(site: Site) -> None:
    site.patch("migconfiguration", GPU, enabled=False)
    site.wait("migconfiguration", GPU, "{.status.status}=disabled")
    site.patch("sriovgpudevice", GPU, enabled=False)
    site.until(lambda: site.count("vgpudevices") == site.count("migconfigurations") == 0, "functions and layout to go")
    site.wait("sriovgpudevice", GPU, "condition=Ready")
    found = site.agents[NODE].sim.show()["gpus"][0]
    assert (found["functions"], found["instances"], found["vgpus"]) == (0, [], [])
    assert site.agents[OTHER].writes() == []
