"""Laws of a node that moves between pcidevices and Aliquot: a hand-over changes no hardware and no request, in either
direction, whatever users, VMs and reboots did before.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from support.selection import parts
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One
from unit.kubernetes.virtual_machines.harvester.pcidevices_model import Pcidevices

GPU, NAME = "0000:26:00.0", "n-000026000"
TYPES = ("NVIDIA L40S-12A", "NVIDIA L40S-12Q", "NVIDIA L40S-24Q")
EVENTS = ("gpu", "vgpu", "vgpu", "vm", "reboot", "move", "move", "loop")


class History:
    """A node, and which of the two controllers serves it."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.one = One("l40s:vfio", directory, "n", GPU)
        self.theirs = Pcidevices(self.one, GPU)
        self.ours, self.chance = chance.random() < 0.5, chance
        self.used, self.boots = "", 1
        self.story: list[str] = []
        self.serve()
        self.one.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": True}})
        self.serve()

    def serve(self) -> None:
        """Run the controller of the node until nothing changes."""
        if self.ours:
            self.one.settle()
        else:
            self.theirs.run()

    def requests(self) -> JSON:
        """Return what users request, by object."""
        kinds = ("SRIOVGPUDevice", "VGPUDevice", "PCIDeviceClaim")
        found = {key: body["spec"] for key, body in self.one.store.objects.items() if key[0] in kinds}
        return copy.deepcopy({f"{kind}/{name}": spec for (kind, name), spec in found.items()})

    def run(self, event: str) -> None:
        self.story.append(event)
        getattr(self, f"_{event}")()
        self.serve()
        assert not self.used or self.used in self.one.live(), f"a VM lost its vGPU: {self.story}"

    def _gpu(self) -> None:
        """Enable or disable the GPU. The webhooks refuse to disable it below an enabled vGPU."""
        enabled = any(body["spec"]["enabled"] for body in self.one.store.of("VGPUDevice").values())
        self.one.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": enabled or self.chance.random() < 0.7}})

    def _vgpu(self) -> None:
        """Enable a free vGPU with an available type, or disable one. The webhooks refuse what a VM uses."""
        found = list(self.one.store.of("VGPUDevice").values())[:4]
        for body in self.chance.sample(found, min(1, len(found))):
            spec, types = body["spec"], body["status"].get("availableTypes", {})
            choices = [name for name in TYPES if name in types]
            if spec["enabled"] and spec["address"] != self.used:
                self._set(body, {"enabled": False, "vGPUTypeName": ""})
            elif not spec["enabled"] and choices:
                self._set(body, {"enabled": True, "vGPUTypeName": self.chance.choice(choices)})

    def _set(self, body: JSON, spec: JSON) -> None:
        self.one.store.patch("VGPUDevice", body["metadata"]["name"], {"spec": spec})

    def _vm(self) -> None:
        if self.used:
            self.one.stop_vm()
            self.used = ""
        elif self.one.live():
            self.used = self.chance.choice(sorted(self.one.live()))
            self.one.start_vm(self.used)

    def _reboot(self) -> None:
        if self.used:
            self.one.stop_vm()
        self.used, self.boots = "", self.boots + 1
        self.one.reboot(self.boots)

    def _loop(self) -> None:
        """Let the controller run once more."""

    def _move(self) -> None:
        """Give the node to the other controller, at rest."""
        self.serve()
        before = (self.one.live(), self.one.instances(), self.requests())
        self.ours = not self.ours
        self.serve()
        assert (self.one.live(), self.one.instances(), self.requests()) == before, (self.ours, self.story)


@pytest.mark.parametrize("seed", parts(6))
def test_a_node_moves_and_nothing_of_it_changes(seed: int, tmp_path: Path) -> None:
    history = History(tmp_path, random.Random(seed))
    for _ in range(12):
        history.run(history.chance.choice(EVENTS))
    history.run("move")
    history.run("move")
