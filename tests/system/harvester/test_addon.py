"""Nodes move between pcidevices and Aliquot while Harvester's Addon stays enabled: both ways, over an upgrade, with VMs
running and stopped.
"""

from __future__ import annotations

import pytest

from support.devicesagent import PLURALS
from support.harvester_addon import GPU_PAGES, RefusedError
from support.kubevirt.players import SETTINGS
from system.harvester.addons import CONFIGS, AddonCluster
from system.harvester.conftest import MakeSite
from system.harvester.site import MACHINES, Site
from system.harvester.test_operations import Q4, RESOURCE, carry, enable

ONE, TWO = "harvester-82cd7", "harvester-kgd9c"
A2 = f"{ONE}-000008000"


@pytest.mark.slow
def test_nodes_move_there_and_back_with_vms_running_and_stopped(site_on_standin: MakeSite) -> None:
    site = site_on_standin({ONE: "a2:mdev:bus08", TWO: "a2:mdev:bus08"}, pods=False)
    addons = AddonCluster(site)
    addons.settle()
    site.until(lambda: len(addons.repairs()) == len(PLURALS), "the controller to repair what the pods overwrote")
    for node in (ONE, TWO):
        state(site, node, "idle")
    site.kubectl("apply", "-f", str(MACHINES / "optional/beside-pcidevices.yaml"))
    addons.label(ONE, True)
    state(site, ONE, "working")
    assert site.agents[TWO].standing()["state"] == "idle", "the other node has not moved"
    launcher = two_vms(site)
    nothing_about_the_addon_moves_the_node(site, addons)
    assert (site.environment.launcher("desk").pod, site.agents[ONE].vgpus()) == (launcher, live(site))

    addons.label(ONE, False)  # back to pcidevices, whose start drops our fields
    assert addons.lacking(), "so soon after its repair, the next one waits"
    state(site, ONE, "idle")
    before = (site.agents[ONE].writes(), site.agents[ONE].vgpus(), permitted(site))
    site.halt("desk")
    assert (site.agents[ONE].writes(), site.agents[ONE].vgpus(), permitted(site)) == before, "nothing of it goes"

    addons.label(ONE, True)  # and to us again, with both stopped
    state(site, ONE, "working")
    site.agents[ONE].at_rest(2)
    assert site.agents[ONE].writes() == before[0], "no call at all"
    site.environment.start("desk")
    site.runs("desk")


def state(site: Site, node: str, wanted: str) -> None:
    agent = site.agents[node]
    agent.until(lambda: agent.standing().get("state") == wanted, wanted)


def live(site: Site) -> dict[str, str]:
    return {"0000:08:00.4": Q4, "0000:08:00.5": Q4}


def permitted(site: Site) -> object:
    return site.cluster.get(f"{SETTINGS}/kubevirt")["spec"]["configuration"].get("permittedHostDevices")


def two_vms(site: Site) -> str:
    """Create two vGPUs, a VM that runs with one, and a stopped VM that names the other as Harvester 1.8 does."""
    for name in enable(site, A2)[:2]:
        carry(site, name, Q4)
    site.until(lambda: site.offered(ONE, RESOURCE) == "2", "the kubelet to offer them")
    site.create("desk", [RESOURCE])
    launcher = site.runs("desk")
    device = {"name": f"{ONE}-000008005", "deviceName": RESOURCE}
    site.environment.create("stopped", host_devices=[device], strategy="Halted")
    return launcher.pod


def nothing_about_the_addon_moves_the_node(site: Site, addons: AddonCluster) -> None:
    """Upgrade Harvester, and try to disable the Addon: pages and node stay."""
    config = site.cluster.get(f"{CONFIGS}/pcidevices-controller")["spec"]
    addons.upgrade("v1.9.0")
    assert addons.pages() == GPU_PAGES
    with pytest.raises(RefusedError, match="stopped"):
        addons.enable(False)
    addons.settle()
    assert addons.model.pods == {TWO}
    assert site.agents[ONE].standing()["state"] == "working"
    assert site.cluster.get(f"{CONFIGS}/pcidevices-controller")["spec"] == config
