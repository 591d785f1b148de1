"""Harvester's pages against our objects: every recorded read and write, in the order in which a user meets them."""

from __future__ import annotations

import pytest

from system.harvester.addons import ADDONS, AddonCluster
from system.harvester.conftest import MakeSite
from system.harvester.site import Site
from system.harvester.ui import UI, drawn, missing, offered_to_vms, press, put

ONE, CUT = "harvester-82cd7", "harvester-kgd9c"
A2, A100, FIRST = f"{ONE}-000008000", f"{CUT}-000004000", f"{ONE}-000008004"
PAGES = {"sriovgpudevice", "vgpudevice", "migconfiguration"}


@pytest.mark.slow
def test_the_pages_of_a_release(site_on_standin: MakeSite) -> None:
    site = site_on_standin({ONE: "a2:mdev:bus08", CUT: "a100-sxm4-40gb:mdev:bus04"})
    AddonCluster(site)
    assert drawn(site) == PAGES == {each["kind"] for each in UI["pages"]}
    for gpu in (A2, A100):
        site.until(lambda: not missing_or_absent(site, "sriovgpudevice", gpu), f"the fields of {gpu}")  # noqa: B023 -- called at once
    vgpus(site)
    migs(site)
    for name in UI["needs"]:
        site.cluster.must("PATCH", f"{ADDONS}/{name}", {"spec": {"enabled": False}})
        assert drawn(site) == set()
        site.cluster.must("PATCH", f"{ADDONS}/{name}", {"spec": {"enabled": True}})


def missing_or_absent(site: Site, kind: str, name: str) -> list[str]:
    return missing(site, kind, name) if site.seen(f"{kind}s", name) else ["the object"]


def vgpus(site: Site) -> None:
    """Walk through the pages of GPUs, vGPUs and a VM, and back."""
    press(site, "enable-gpu", A2)
    site.wait("sriovgpudevice", A2, "condition=Ready")
    assert missing(site, "sriovgpudevice", A2) == []
    site.until(lambda: not missing_or_absent(site, "vgpudevice", FIRST), "what the vGPU page shows")
    press(site, "enable-vgpu", FIRST, "NVIDIA A2-4Q")
    site.wait("vgpudevice", FIRST, "{.status.vGPUStatus}=vGPUConfigured")
    site.until(lambda: set(missing(site, "vgpudevice", FIRST)) <= {"status.availableTypes"}, "what its row shows")
    assert missing(site, "pcidevice", A2) == []
    (entry,) = offered_to_vms(site)
    assert entry == {"name": FIRST, "deviceName": "nvidia.com/NVIDIA_A2-4Q"}
    site.until(lambda: site.offered(ONE, entry["deviceName"]) == "1", "the kubelet to offer it")
    site.create("desk", [entry])
    site.runs("desk")
    assert "in use" in str(put(site, "disable-vgpu", FIRST).body)
    site.remove("desk")
    press(site, "disable-vgpu", FIRST)
    site.until(lambda: site.agents[ONE].vgpus() == {}, "the vGPU to go")
    press(site, "disable-gpu", A2)
    site.until(lambda: site.count("vgpudevices") == 0, "the functions to go")


def migs(site: Site) -> None:
    """Walk through the MIG page, and share the GPU by time instead."""
    press(site, "enable-gpu", A100)
    site.until(lambda: not missing_or_absent(site, "migconfiguration", A100), "what the MIG page shows")
    assert editable(site), "a new configuration can be edited"
    rows = site.seen("migconfigurations", A100)["spec"]["profileSpec"]
    press(site, "edit-mig", A100, [{**row, "requested": 2 if row["id"] == 19 else 0} for row in rows])
    site.wait("migconfiguration", A100, "{.status.status}=synced")
    assert not editable(site)
    press(site, "disable-mig", A100)
    site.until(lambda: editable(site), "it to be edited again")
    press(site, "disable-gpu", A100)
    site.until(lambda: site.count("migconfigurations") == 0, "the MIG page to be empty")
    press(site, "enable-gpu-time-sliced", A100)
    site.until(lambda: site.count("vgpudevices") == 16, "time-sliced vGPUs")
    assert site.count("migconfigurations") == 0


def editable(site: Site) -> bool:
    body = site.seen("migconfigurations", A100)
    return not body["spec"]["enabled"] and body["status"]["status"] in UI["mig_editable"]["status"]
