"""A Tesla T4, which has no SR-IOV: its vGPUs by Harvester's kinds, in a VM, over a reboot, and back."""

from __future__ import annotations

import pytest

from system.harvester.conftest import MakeSite

NODE = "harvester-old"
GPU = f"{NODE}-000008000"
FOUR_Q = "nvidia.com/GRID_T4-4Q"


@pytest.mark.slow
def test_a_t4_serves_vms(make_site: MakeSite) -> None:
    site = make_site({NODE: "t4:mdev:bus08"})
    site.until(lambda: site.seen("sriovgpudevices", GPU).get("status"), "the board to be shown")
    site.patch("sriovgpudevice", GPU, enabled=True)
    site.wait("sriovgpudevice", GPU, "condition=Ready")
    site.until(lambda: site.count("vgpudevices") == 16, "its sixteen devices")
    for number in ("00", "01"):
        site.until(
            lambda: site.seen("vgpudevices", f"{GPU}-01")["status"].get("availableTypes"), "types to choose from"
        )
        site.patch("vgpudevice", f"{GPU}-{number}", enabled=True, vGPUTypeName="GRID T4-4Q")
        site.wait("vgpudevice", f"{GPU}-{number}", "condition=Ready")
    site.until(lambda: site.offered(NODE, FOUR_Q) == "2", "both to be offered")
    assert "does not fit beside" in site.refused("vgpudevice", f"{GPU}-02", enabled=True, vGPUTypeName="GRID T4-8Q")

    site.create("desk", [FOUR_Q])
    launcher = site.runs("desk")
    (uuid,) = launcher.environment.values()
    site.until(lambda: site.has("desk"), "the name of its device")
    ((names,),) = [list(resources.values()) for resources in site.has("desk").values() if resources]
    assert site.get("vgpudevice", names[0])["status"]["uuid"] == uuid
    assert "desk" in site.refused("vgpudevice", names[0], enabled=False)
    assert "desk" in site.refused("sriovgpudevice", GPU, enabled=False)

    site.halt("desk")
    site.remove("desk")
    for number in ("00", "01"):
        site.patch("vgpudevice", f"{GPU}-{number}", enabled=False)
    site.until(lambda: site.agents[NODE].vgpus() == {}, "the mdevs to go")
    site.patch("sriovgpudevice", GPU, enabled=False)
    site.until(lambda: site.count("vgpudevices") == 0, "the devices to go")
