"""The controller with its webhooks: devices, nodes and VMs change, reviews are requested, watches break."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import support.admissions as made
from laws.soak.growth import environment, soak
from laws.soak.program import Watches
from support.cluster import StandinCluster
from support.kubevirt.objects import machine, machines
from support.webhooked import ROOT, Bed
from system.harvester.controllerprocess import ControllerProcess

Q = "nvidia.com/NVIDIA_A2-4Q"
VMS = machines("default")
FUNCTIONS = ("0000:08:00.4", "0000:08:00.5")


class Site:
    """A node with an A2 of two vGPUs, and the controller in a fresh interpreter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = StandinCluster(folder)
        self.bed = Bed(self.cluster)
        self.cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        self.offer(2)
        self.bed.make(
            "sriovgpudevices", made.gpu(True, "n1-000008004", "n1-000008005") | {"metadata": {"name": made.GPU}}
        )
        for address in FUNCTIONS:
            self.bed.make("vgpudevices", made.vgpu(address, "NVIDIA A2-4Q", True))
        self.controller = ControllerProcess(self.cluster, folder)
        self.controller.environment |= environment(folder)
        self.controller.start()

    @property
    def pid(self) -> int:
        assert self.controller.process is not None
        return self.controller.process.pid

    def offer(self, count: int) -> None:
        """Offer this many vGPUs on the node."""
        figures = {"capacity": {Q: str(count)}, "allocatable": {Q: str(count)}}
        status = figures | {"conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.must("PATCH", "/api/v1/nodes/n1/status", {"status": status})

    def let_in(self, count: int) -> bool:
        """Report whether the webhook would admit a VM with this many vGPUs."""
        answer = self.bed.ask("POST", f"{VMS}?dryRun=All", machine("asked", gpus=[Q] * count))
        assert answer.status in (201, 403), answer
        return answer.status == 201

    def close(self) -> None:
        self.controller.close()
        self.bed.close()
        self.cluster.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    found.close()


def change(site: Site, number: int) -> None:
    """Make the changes of a cycle, and wait until the controller's answers show them."""
    bed, name = site.bed, f"vm-{number}"
    match number % 4:
        case 0:
            site.offer(3)
            site.cluster.wait(lambda: site.let_in(3), "one vGPU more")
        case 1:
            site.offer(2)
            site.cluster.wait(lambda: not site.let_in(3), "one vGPU less")
        case 2:
            assert bed.ask("POST", VMS, machine(name, gpus=[Q])).status == 201
            site.cluster.wait(lambda: not site.let_in(2), "the machine to count")
            site.cluster.must("PATCH", f"{VMS}/{name}", {"spec": {"runStrategy": "Halted"}})
            site.cluster.wait(lambda: site.let_in(2), "the machine to count no more")
            site.cluster.must("DELETE", f"{VMS}/{name}")
        case _:
            refused = bed.ask("PATCH", f"sriovgpudevices/{made.GPU}", {"spec": {"enabled": False}})
            assert refused.status == 403, refused
            for enabled in (False, True):
                site.cluster.must("PATCH", f"{ROOT}/vgpudevices/n1-000008005", {"spec": {"enabled": enabled}})


def test_the_controller_and_its_webhooks(site: Site) -> None:
    control = site.cluster.standin.control

    def cycle(number: int) -> None:
        change(site, number)
        match number % 5:
            case 0:
                control.drop()
            case 1:
                site.cluster.expire()
            case 2:
                label = {"metadata": {"labels": {"another": str(number)}}}
                site.cluster.must("PATCH", "/api/v1/nodes/n1", label)
            case 3:
                site.cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": f"brief-{number}"}})
                site.cluster.must("DELETE", f"/api/v1/nodes/brief-{number}")

    soak(site.pid, site.folder, cycle, Watches(control).again)
