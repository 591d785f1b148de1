"""The vGPU document's objects in its order, by kubectl: from an untouched GPU to a VM and back."""

from __future__ import annotations

from support.kubevirt.players import SETTINGS
from system.harvester import samples
from system.harvester.conftest import MakeSite
from system.harvester.samples import comparable, printed, sample, table
from system.harvester.site import Site

ONE, OTHER = "harvester-82cd7", "harvester-kgd9c"
GPU, FIRST, LATER = f"{ONE}-000008000", f"{ONE}-000008004", f"{ONE}-000008021"
EIGHT, RESOURCE = "NVIDIA A2-8Q", "nvidia.com/NVIDIA_A2-8Q"


def test_from_a_gpu_to_a_machine_with_a_vgpu_and_back(make_site: MakeSite) -> None:
    site = make_site({ONE: "a2:mdev:bus08", OTHER: "a2:mdev:bus08"})
    shared_between_machines(site)
    one_vgpu_is_configured(site)
    what_webhooks_refuse(site)
    a_machine_has_it(site)
    back_to_nothing(site)


def shared_between_machines(site: Site) -> None:
    """Enable an SRIOVGPUDevice for each GPU: it lists its functions, and each has an object that names its types."""
    for node in (ONE, OTHER):
        site.until(lambda: site.agents[node].ready("sriovgpudevices", "0000:08:00.0"), f"the GPU of {node}")  # noqa: B023 -- called at once
        assert comparable(site.get("sriovgpudevice", f"{node}-000008000")) == samples.gpu(node, enabled=False)
    site.patch("sriovgpudevice", GPU, enabled=True)
    site.wait("sriovgpudevice", GPU, "condition=Ready")
    assert comparable(site.get("sriovgpudevice", GPU)) == samples.gpu(ONE, enabled=True)
    site.wait("vgpudevice", LATER, "condition=Ready")
    site.until(lambda: len(site.agents[ONE].all("vgpudevices")) == 16, "all of its functions")
    assert printed(site.kubectl("get", "vgpudevices")) == table(ONE, {}), "none of the other node's"
    assert comparable(site.get("vgpudevice", LATER)) == sample(samples.FREE)


def one_vgpu_is_configured(site: Site) -> None:
    """Configure one vGPU: its object reports it, the others offer what is left, and KubeVirt and the node's kubelet
    know it.
    """
    site.patch("vgpudevice", FIRST, enabled=True, vGPUTypeName=EIGHT)
    site.wait("vgpudevice", FIRST, "{.status.vGPUStatus}=vGPUConfigured")
    assert comparable(site.get("vgpudevice", FIRST)) == sample(samples.CONFIGURED)
    site.until(lambda: "A2-4Q" not in str(site.seen("vgpudevices", LATER)), "the others to be calculated again")
    assert comparable(site.get("vgpudevice", LATER)) == sample(samples.BESIDE_AN_8Q)
    of_the_gpu = site.kubectl("get", "vgpudevices", "-l", f"harvesterhci.io/parentSRIOVGPUDevice={GPU}")
    assert printed(of_the_gpu) == table(ONE, {"00.4": EIGHT})
    entry = {"mdevNameSelector": EIGHT, "resourceName": RESOURCE, "externalResourceProvider": True}
    site.until(lambda: permitted(site).get("mediatedDevices") == [entry], "KubeVirt to permit it")
    site.until(lambda: site.offered(ONE, RESOURCE) == "1", "kubelet to offer it")
    assert site.offered(OTHER, RESOURCE) is None


def permitted(site: Site) -> dict[str, object]:
    found = site.cluster.get(f"{SETTINGS}/kubevirt")["spec"]["configuration"]
    return dict(found.get("permittedHostDevices") or {})


def what_webhooks_refuse(site: Site) -> None:
    """Check that a parent with an enabled vGPU stays enabled, and that only an offered type is accepted."""
    answer = site.refused("sriovgpudevice", GPU, enabled=False)
    assert f"cannot disable {GPU} while vGPU {FIRST} is enabled" in answer
    answer = site.refused("vgpudevice", LATER, enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    assert "NVIDIA A2-4Q" in answer
    assert "NVIDIA A2-8A, NVIDIA A2-8C, NVIDIA A2-8Q" in answer, answer
    assert site.get("sriovgpudevice", GPU)["spec"]["enabled"]
    assert comparable(site.get("vgpudevice", LATER)) == sample(samples.BESIDE_AN_8Q)


def a_machine_has_it(site: Site) -> None:
    """Add the vGPU to an existing VM, and start it. Its launcher has the variable that names the mdev, and that one's
    files; its object reports the vGPU and keeps it.
    """
    site.create("desk", strategy="Halted")
    site.until(lambda: site.environment.machine("desk")["status"].get("printableStatus") == "Stopped", "it to exist")
    devices = {"gpus": [{"name": FIRST, "deviceName": RESOURCE}]}
    site.patch(
        "virtualmachine", "desk", runStrategy="RerunOnFailure", template={"spec": {"domain": {"devices": devices}}}
    )
    launcher = site.runs("desk")
    uuid = site.get("vgpudevice", FIRST)["status"]["uuid"]
    assert launcher.node == ONE
    assert launcher.environment == {"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-8Q": uuid}
    files = ("/dev/vfio/vfio", f"/dev/vfio/{site.group(ONE, uuid)}")
    assert set(launcher.devices) == {(path, path, "mrw") for path in files}
    site.until(lambda: site.has("desk") == {"gpus": {RESOURCE: [FIRST]}}, "the machine to say which it has")
    answer = site.refused("vgpudevice", FIRST, enabled=False)
    assert f"{FIRST} is in use with VM desk in namespace default" in answer
    assert "is requested, 0 can still be allocated" in site.not_created("second", [RESOURCE])


def back_to_nothing(site: Site) -> None:
    site.halt("desk")
    site.remove("desk")
    site.patch("vgpudevice", FIRST, enabled=False)
    site.until(lambda: site.agents[ONE].vgpus() == {}, "the vGPU to go")
    site.until(lambda: comparable(site.seen("vgpudevices", LATER)) == sample(samples.FREE), "every type again")
    site.until(lambda: site.offered(ONE, RESOURCE) == "0", "kubelet to offer it no more")
    site.patch("sriovgpudevice", GPU, enabled=False)
    site.until(lambda: site.count("vgpudevices") == 0, "the functions to go")
    site.wait("sriovgpudevice", GPU, "condition=Ready")
    assert comparable(site.get("sriovgpudevice", GPU)) == samples.gpu(ONE, enabled=False)
    assert permitted(site).get("mediatedDevices") in (None, []), "nothing of ours stays in KubeVirt's settings"
    assert site.agents[OTHER].writes() == []
