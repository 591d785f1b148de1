"""Installation over a live pcidevices: the objects of Harvester's documents, with their vGPUs and layout, and a running
VM.

The agent is idle while pcidevices works. Then everything is kept as it is.
"""

from __future__ import annotations

import pytest
import yaml

from aliquot.sim.files import SimFiles
from support.devicesagent import DevicesAgent
from support.kubevirt.players import SETTINGS
from system.harvester import samples
from system.harvester.conftest import MakeSite
from system.harvester.samples import comparable, sample
from system.harvester.site import JSON, Site

VGPUS, CUT = "harvester-82cd7", "dell-190-tink-system"
A2, A100 = "0000:08:00.0", "0000:04:00.0"
UUID = "5b5b7326-6bb8-48cb-a321-8fa58ccbb38c"
EIGHT, RESOURCE = "NVIDIA A2-8Q", "nvidia.com/NVIDIA_A2-8Q"
ENTRY = {"mdevNameSelector": EIGHT, "resourceName": RESOURCE, "externalResourceProvider": True}
FOREIGN = {"pciVendorSelector": "8086:10ed", "resourceName": "intel.com/82599", "externalResourceProvider": True}
NAMESPACE, LABELS = "harvester-system", {"app.kubernetes.io/name": "harvester-pcidevices-controller"}


@pytest.mark.slow
def test_from_pcidevices_to_us_with_a_machine_running(make_site: MakeSite) -> None:
    site = make_site({}, pods=False)
    agents = [site.add(VGPUS, "a2:mdev:bus08", start=False), site.add(CUT, "a100-sxm4-40gb:mdev:bus04", start=False)]
    what_pcidevices_left(site, *agents)
    before = {agent.name: (agent.versions(), agent.writes(), agent.vgpus(), agent.geometry()) for agent in agents}
    for agent in agents:
        agent.start()
        agent.until(lambda: agent.standing().get("reason") == "PcidevicesRuns", "idle")  # noqa: B023 -- called at once
        agent.until(lambda: agent.observations() == 0 and agent.page("/readyz")[0] == 200, "ready, and idle")  # noqa: B023
    shown = site.kubectl("get", "nodes", "-o", r"custom-columns=D:.metadata.annotations.aliquot\.dev/devices")
    assert shown.count('"state":"idle"') == 2, shown
    assert before == {a.name: (a.versions(), a.writes(), a.vgpus(), a.geometry()) for a in agents}
    site.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force")
    for agent in agents:
        agent.until(lambda: agent.standing().get("state") == "working", "at work")  # noqa: B023 -- called at once
        agent.at_rest(2)
    assert [agent.writes() for agent in agents] == [before[agent.name][1] for agent in agents], "no call at all"
    everything_is_as_it_was(site)
    the_machine_runs_on_and_gives_its_vgpu_back(site, agents[0])


def what_pcidevices_left(site: Site, shared: DevicesAgent, cut: DevicesAgent) -> None:
    """Create the hardware by hand, and the objects as its documents show them, with entries twice and pods on both
    nodes.
    """
    cut.sim.set_mode(0, True)
    cut.sim.reset(0)
    for agent in (shared, cut):
        assert agent.sim.sriov_manage("-e", "ALL")["rc"] == 0
    SimFiles(shared.sim).write(f"/sys/bus/pci/devices/{A2[:-1]}4/mdev_supported_types/nvidia-747/create", UUID)
    shared.sim.start_vm("desk", UUID)
    make(site, "sriovgpudevices", samples.gpu(VGPUS, enabled=True))
    make(site, "vgpudevices", yaml.safe_load(samples.CONFIGURED))
    for at in samples.GLOB.split()[1:]:
        make(site, "vgpudevices", free(at))
    layout(site, cut)
    body = {
        "spec": {
            "configuration": {"permittedHostDevices": {"mediatedDevices": [ENTRY, ENTRY], "pciHostDevices": [FOREIGN]}}
        }
    }
    site.cluster.must("PATCH", f"{SETTINGS}/kubevirt", body)
    for agent in (shared, cut):
        spec = {"nodeName": agent.name, "containers": [{"name": "agent", "image": "pcidevices"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pcidevices-{agent.name}", "labels": LABELS}}
        site.cluster.must("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {**pod, "spec": spec})


def make(site: Site, plural: str, body: JSON) -> JSON:
    """Create an object as pcidevices writes it. Its account is not judged."""
    root = "/apis/devices.harvesterhci.io/v1beta1"
    body["metadata"] = {k: v for k, v in body["metadata"].items() if k in ("name", "labels", "ownerReferences")}
    made = site.cluster.must("POST", f"{root}/{plural}", body)
    if "status" in body:
        site.cluster.must("PATCH", f"{root}/{plural}/{body['metadata']['name']}/status", {"status": body["status"]})
    return made


def free(at: str) -> JSON:
    text = samples.BESIDE_AN_8Q.replace("0000:08:02.1", f"0000:08:{at}").replace(
        "000008021", f"000008{at.replace('.', '')}"
    )
    found: JSON = yaml.safe_load(text)
    return found


def layout(site: Site, cut: DevicesAgent) -> None:
    """Create six 1g.5gb and one with media engines, with the numbers that the sample lists."""
    for start in range(7):
        cut.sim.create(0, "1g.5gb+me" if start == 3 else "1g.5gb", start)
    device = samples.gpu(CUT, enabled=True)
    text = yaml.safe_dump(device).replace("0000:08", "0000:04").replace("000008", "000004")
    owner = make(site, "sriovgpudevices", yaml.safe_load(text))["metadata"]["uid"]
    found = yaml.safe_load(samples.MIG)
    found["metadata"]["ownerReferences"][0]["uid"] = owner
    ids: dict[str, list[str]] = {}
    for each in cut.sim.show()["gpus"][0]["instances"]:
        ids.setdefault(f"MIG {each['profile']}", []).append(str(each["id"]))
    for row in found["status"]["profileStatus"]:
        if row["name"] in ids:
            row["vGPUID"] = sorted(ids[row["name"]], key=int)
    make(site, "migconfigurations", found)


def everything_is_as_it_was(site: Site) -> None:
    """Compare with the documents' objects, with conditions, and KubeVirt's settings without the repetition."""
    assert comparable(site.get("sriovgpudevice", f"{VGPUS}-000008000")) == samples.gpu(VGPUS, enabled=True)
    configured = site.get("vgpudevice", f"{VGPUS}-000008004")
    assert (comparable(configured), configured["status"]["uuid"]) == (sample(samples.CONFIGURED), UUID)
    assert comparable(site.get("vgpudevice", f"{VGPUS}-000008021")) == sample(samples.BESIDE_AN_8Q)
    assert {c["status"] for c in configured["status"]["conditions"]} == {"True"}
    found = site.get("migconfiguration", f"{CUT}-000004000")
    assert found["status"]["status"] == "synced"
    assert comparable(found)["spec"] == sample(samples.MIG)["spec"]
    permitted = site.cluster.get(f"{SETTINGS}/kubevirt")["spec"]["configuration"]["permittedHostDevices"]
    site.until(lambda: entries(site)["mediatedDevices"] == [ENTRY], f"one entry of {permitted}")
    assert entries(site)["pciHostDevices"] == [FOREIGN]


def entries(site: Site) -> JSON:
    found: JSON = site.cluster.get(f"{SETTINGS}/kubevirt")["spec"]["configuration"]["permittedHostDevices"]
    return found


def the_machine_runs_on_and_gives_its_vgpu_back(site: Site, agent: DevicesAgent) -> None:
    site.until(lambda: site.offered(VGPUS, RESOURCE) == "1", "kubelet to know it")
    site.patch("vgpudevice", f"{VGPUS}-000008004", enabled=False)
    site.wait("vgpudevice", f"{VGPUS}-000008004", "condition=Ready=False")
    assert "desk" in str(site.get("vgpudevice", f"{VGPUS}-000008004")["status"]["conditions"])
    assert agent.vgpus() == {"0000:08:00.4": EIGHT}
    agent.sim.stop_vm("desk")
    site.until(lambda: agent.vgpus() == {}, "it to go once the machine is off")
