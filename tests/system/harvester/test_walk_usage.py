"""Harvester's manual on vGPUs, by kubectl: usage, the needs of several vGPUs in one VM, the cap, and the counts that
Rancher reads.

One node has mdevs as the manual's, the other a newer kernel without them.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from typing import Any

import pytest

from support import forkserver
from system.harvester import samples
from system.harvester.conftest import MakeSite
from system.harvester.samples import comparable, printed, sample, table
from system.harvester.site import JSON, Site

ONE, OTHER = "harvester-kgd9c", "harvester-82cd7"
GPU = f"{ONE}-000008000"
Q, A, C = (f"nvidia.com/NVIDIA_A2-4{series}" for series in "QAC")
FIRST = {"00.4": "NVIDIA A2-4A", "00.5": "NVIDIA A2-4Q", "00.6": "NVIDIA A2-4A", "00.7": "NVIDIA A2-4Q"}


@pytest.mark.slow
def test_usage_limitations_and_figures(make_site: MakeSite) -> None:
    site = make_site({ONE: "a2:mdev:bus08", OTHER: "a2:vfio:bus08"})
    a_gpu_is_found_and_enabled(site)
    the_first_profile_decides_about_the_others(site)
    four_are_the_most(site)
    the_node_offers(site)
    several_in_one_machine(site)
    figures_over_all_nodes(site)
    back_to_nothing(site)


def device(at: str, node: str = ONE) -> str:
    return f"{node}-000008{at.replace('.', '')}"


def types(site: Site, at: str, node: str = ONE) -> set[str]:
    return set(site.seen("vgpudevices", device(at, node)).get("status", {}).get("availableTypes", {}))


def configure(site: Site, at: str, kind: str, node: str = ONE) -> None:
    site.patch("vgpudevice", device(at, node), enabled=True, vGPUTypeName=kind)
    site.wait("vgpudevice", device(at, node), "{.status.vGPUStatus}=vGPUConfigured")


def a_gpu_is_found_and_enabled(site: Site) -> None:
    for node in (ONE, OTHER):
        name = f"{node}-000008000"
        site.until(lambda: site.seen("sriovgpudevices", name).get("status"), f"{name} to be scanned")  # noqa: B023 -- called at once
        site.patch("sriovgpudevice", name, enabled=True)
    site.until(lambda: site.count("vgpudevices") == 32, "the functions of both")
    site.wait("sriovgpudevice", GPU, "condition=Ready")
    assert comparable(site.get("sriovgpudevice", GPU)) == samples.gpu(ONE, enabled=True)


def the_first_profile_decides_about_the_others(site: Site) -> None:
    """Configure a 4C for a while, then the types of the manual."""
    configure(site, "00.4", "NVIDIA A2-4C")
    site.until(lambda: site.offered(ONE, C) == "1", "the 4C to be offered")
    site.patch("vgpudevice", device("00.4"), enabled=False)
    site.until(lambda: len(types(site, "00.4")) == 15, "every profile again")
    configure(site, "00.4", FIRST["00.4"])
    sizes = {"NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q"}
    site.until(lambda: all(types(site, at) == sizes for at in samples.GLOB.split()[1:]), "the others to follow")
    assert comparable(site.get("vgpudevice", device("00.4"))) == sample(samples.CONFIGURED_4A)


def four_are_the_most(site: Site) -> None:
    for at, kind in list(FIRST.items())[1:]:
        configure(site, at, kind)
    rest = [at for at in samples.GLOB.split() if at not in FIRST]
    site.until(lambda: not any(types(site, at) for at in rest), "nothing to be left for the others")
    answer = site.refused("vgpudevice", device("01.0"), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    assert "NVIDIA A2-4Q is not a valid profile" in answer
    assert "nothing is available" in answer
    assert printed(site.kubectl("get", "vgpudevices", "-l", f"nodename={ONE}")) == table(ONE, FIRST)


def the_node_offers(site: Site) -> None:
    site.until(lambda: (site.offered(ONE, Q), site.offered(ONE, A)) == ("2", "2"), "the node's figures")
    figures = site.get("node", ONE)["status"]["allocatable"]
    assert {name: n for name, n in figures.items() if name.startswith("nvidia.com/")} == samples.ALLOCATABLE


def several_in_one_machine(site: Site) -> None:
    """Create VMs with several vGPUs: only Q-series may be several, on one node. Exactly one has ramFB, whichever actor
    chose it.
    """
    answer = site.not_created("two-a", [A, A])
    assert "NVIDIA A2-4A must be the only vGPU of a VM, this one has 2" in answer
    both = [
        {"name": name, "deviceName": Q, "virtualGPUOptions": {"display": {"ramFB": {"enabled": True}}}} for name in "ab"
    ]
    assert "ramFB" in site.not_created("two-ramfb", both)
    manual = [{"name": "a", "deviceName": Q}, {"name": "b", "deviceName": Q, "virtualGPUOptions": without_ramfb()}]
    asked_for: dict[str, list[Any]] = {"plain": [Q, Q], "as-in-the-manual": manual}
    for name, asked in asked_for.items():
        site.create(name, asked)
        gpus = site.get("virtualmachine", name)["spec"]["template"]["spec"]["domain"]["devices"]["gpus"]
        assert [ramfb(each) for each in gpus] == [True, False], gpus
        launcher = site.runs(name)
        (value,) = launcher.environment.values()
        mine = {
            row["status"]["uuid"] for row in site.all("vgpudevice") if row["spec"]["vGPUTypeName"] == "NVIDIA A2-4Q"
        }
        assert set(value.split(",")) == mine, "both in one variable"
        assert len(mine) == 2
        site.halt(name)
        site.remove(name)


def without_ramfb() -> JSON:
    return {"display": {"ramFB": {"enabled": False}}}


def ramfb(gpu: JSON) -> bool:
    return bool(gpu["virtualGPUOptions"]["display"]["ramFB"]["enabled"])


def figures_over_all_nodes(site: Site) -> None:
    """Configure two more on the other node: four in all, of which each VM takes one. A fifth is refused, and Rancher's
    count shows that beforehand.
    """
    for at in ("00.4", "00.5"):
        configure(site, at, "NVIDIA A2-4Q", OTHER)
    site.until(lambda: rancher(site).get(Q) == "4", f"four in all: {rancher(site)}")
    assert {name: n for name, n in rancher(site).items() if "A2-4" in name and name != Q} == {A: "2", C: "0"}
    for n in range(4):
        site.create(f"vm-{n}", [Q])
        assert rancher(site)[Q] == str(3 - n), "an admitted machine counts at once"
    assert {site.runs(f"vm-{n}").node for n in range(4)} == {ONE, OTHER}
    answer = site.not_created("vm-4", [Q])
    assert f"1 of {Q} is requested, 0 can still be allocated (4 in the cluster, 4 allocated)" in answer, answer
    rows = capacity(site, "-o", "json")[1]["resources"]
    row = next(each for each in rows if each["resource"] == Q)
    assert {key: row[key] for key in ("total", "usable", "allocated", "allocatable")} == {
        "total": 4,
        "usable": 4,
        "allocated": 4,
        "allocatable": 0,
    }
    assert capacity(site, "--request", Q)[0] == 20
    site.halt("vm-0")
    assert capacity(site, "--request", Q)[0] == 0


def rancher(site: Site) -> dict[str, str]:
    """Return the fields of the cluster that Rancher's form reads, over TLS."""
    assert site.controller is not None
    context = ssl.create_default_context(cadata=site.controller.authority)
    connection = http.client.HTTPSConnection("localhost", site.controller.port, timeout=10, context=context)
    connection.request("GET", "/v1/harvester/cluster/local?link=deviceCapacity")
    answer = connection.getresponse()
    figures: dict[str, str] = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, figures
    return figures


def capacity(site: Site, *words: str) -> tuple[int, Any]:
    """Return the exit status of ``aliquot capacity``, and its document if it is one."""
    typed = [sys.executable, "-m", "aliquot", "capacity", "--kubeconfig", str(site.cluster.kubeconfig()), *words]
    done = forkserver.run(typed, capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout) if "json" in words else done.stdout


def back_to_nothing(site: Site) -> None:
    site.kubectl("delete", "virtualmachines", "--all", "--wait=false")
    site.until(lambda: not site.cluster.get("/apis/kubevirt.io/v1/virtualmachines")["items"], "the machines to go")
    names = [(ONE, at) for at in FIRST] + [(OTHER, "00.4"), (OTHER, "00.5")]
    for node, at in names:
        site.patch("vgpudevice", device(at, node), enabled=False)
    site.until(lambda: all(agent.vgpus() == {} for agent in site.agents.values()), "the vGPUs to go")
    assert site.count("pcideviceclaims") == 0 or site.until(lambda: site.count("pcideviceclaims") == 0, "their claims")
    for node in (ONE, OTHER):
        site.until(lambda: len(types(site, "02.3", node)) == 15, "every profile again")  # noqa: B023 -- called at once
        site.patch("sriovgpudevice", f"{node}-000008000", enabled=False)
    site.until(lambda: site.count("vgpudevices") == 0, "the functions to go")
    zeros = dict.fromkeys(samples.ALLOCATABLE, "0")
    site.until(lambda: zeros.items() <= site.agents[ONE].node()["status"]["allocatable"].items(), "0 of each")
