"""Laws of the objects, under any sequence of actions by users, VMs and other programs.

The agent becomes stable, and then writes and does nothing. Any vGPU that a VM has open and any that a user created by
hand survive. An object that does not match its request says why. Each seed is another history of a node.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model.inventory import Vgpu
from aliquot.kubernetes.kinds.harvester_names import PARAMETERS_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.object_draft import merge_patch
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import list_physical_gpus
from support.selection import parts
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One, merged, ready

PCI, NAME = "0000:08:00.0", "n-000008000"
OPERATIONS = ("gpu", "gpu", "vgpu", "vgpu", "vgpu", "mig", "vm", "hand", "reboot", "forget", "claim", "skip", "tune")
TYPES = {
    "a2:mdev": ("NVIDIA A2-4Q", "NVIDIA A2-4A", "NVIDIA A2-8Q", "NVIDIA A2-16C", "bogus", ""),
    "l40s:vfio": ("NVIDIA L40S-12A", "NVIDIA L40S-12Q", "NVIDIA L40S-24Q", "NVIDIA A2-4Q", ""),
    "t4:mdev": ("GRID T4-4Q", "GRID T4-4A", "GRID T4-8Q", "GRID T4-16C", "bogus", ""),
    "a100-sxm4-40gb:vfio": ("GRID A100X-1-5C", "GRID A100X-3-20C", "GRID A100X-20C", "GRID A100X-10C"),
}
HAND = {"a2:mdev": 746, "l40s:vfio": 1163, "t4:mdev": 232, "a100-sxm4-40gb:vfio": 463}


def alive(one: One) -> dict[str, Vgpu]:
    """Return the vGPUs by the address that their objects have."""
    return {a: v for gpu in list_physical_gpus(one.view(), one.store.typed()) for a, v in gpu.live_vgpus.items()}


class Play:
    """A node and the events on it."""

    def __init__(self, template: str, directory: Path, chance: random.Random) -> None:
        self.template = template
        self.one = One(template, directory, "n", PCI).settle()
        self.machine = ""
        self.made: set[str] = set()
        self.boots = 1
        self.chance = chance
        self.story: list[str] = []

    def do(self, what: str) -> None:
        self.story.append(what)
        getattr(self, f"_{what}")()

    def _device(self, vgpu: Vgpu) -> str:
        """Return what a VM opens, which identifies the vGPU: the UUID of an mdev, or the virtual function."""
        return vgpu.uuid if "mdev" in self.template else vgpu.function

    def _gpu(self) -> None:
        if NAME in self.one.store.of("SRIOVGPUDevice"):
            self.one.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": self.chance.random() < 0.6}})

    def _vgpu(self) -> None:
        names = list(self.one.store.of("VGPUDevice"))[:4]
        if names:
            name = self.chance.choice(names)
            kind = self.chance.choice(TYPES[self.template])
            spec = {"enabled": self.chance.random() < 0.6, "vGPUTypeName": kind}
            if spec["enabled"]:
                carried = alive(self.one).get(self.one.store.get("VGPUDevice", name)["spec"]["address"])
                self.made.discard(self._device(carried) if carried is not None else "")  # it may be adopted now
            self.one.store.patch("VGPUDevice", name, {"spec": spec})

    def _mig(self) -> None:
        if NAME not in self.one.store.of("MigConfiguration"):
            return
        counts = {p: self.chance.randint(0, 3) for p in self.chance.sample([19, 14, 9, 5], 2)}
        rows = self.one.mig(PCI)["spec"]["profileSpec"]
        rows = [{**p, "requested": counts.get(p["id"], 0)} for p in rows]
        self.one.store.patch(
            "MigConfiguration", NAME, {"spec": {"enabled": self.chance.random() < 0.6, "profileSpec": rows}}
        )

    def _vm(self) -> None:
        """Start a VM on a vGPU, or stop one."""
        if self.machine:
            self.one.stop_vm()
            self.machine = ""
        elif alive(self.one):
            self.machine = self._device(self.chance.choice(list(alive(self.one).values())))
            self.one.start_vm(self.machine)

    def _hand(self) -> None:
        """Create a vGPU with echo, if the driver allows it."""
        taken = {v.function for v in alive(self.one).values()}
        free = [a for a in self.one.view().functions[0].virtual[:4] if a not in taken]
        places = [PCI] if self.template == "t4:mdev" else free
        if not places:
            return
        place = self.chance.choice(places)
        uuid = f"00000000-0000-4000-8000-{len(self.one.store.written):012d}" if "mdev" in self.template else ""
        try:
            self.one.make_by_hand(place, HAND[self.template], uuid)
        except OSError:
            return
        new = uuid or place
        address = next((address for address, vgpu in alive(self.one).items() if self._device(vgpu) == new), "")
        found = self.one.store.of("VGPUDevice").get(self.one.name_of(address))
        if found is not None and not found["spec"]["enabled"] and not found["status"].get("uuid"):
            self.made.add(new)

    def _reboot(self) -> None:
        if self.machine:
            self.one.stop_vm()
        self.machine = ""
        self.made.clear()
        self.boots += 1
        self.one.reboot(self.boots)

    def _forget(self) -> None:
        """Delete an object without the webhook."""
        kinds = ("VGPUDevice", "MigConfiguration", "SRIOVGPUDevice", "PCIDevice")
        names = [(kind, name) for kind in kinds for name in list(self.one.store.of(kind))[:3]]
        if names:
            kind, name = self.chance.choice(names)
            self.one.store.delete(kind, name)
            if kind != "PCIDevice":
                self.made.clear()  # existing vGPUs are adopted by the new object, and belong to the user from then on

    def _claim(self) -> None:
        if NAME in self.one.store.of("PCIDeviceClaim"):
            self.one.store.delete("PCIDeviceClaim", NAME)
        else:
            spec = {"address": PCI, "nodeName": "n", "userName": "admin"}
            self.one.store.create("PCIDeviceClaim", {"metadata": {"name": NAME}, "spec": spec})

    def _skip(self) -> None:
        if NAME in self.one.store.of("SRIOVGPUDevice"):
            key = "harvesterhci.io/skip-mig-configuration"
            value = self.chance.choice(["true", None])
            self.one.store.patch("SRIOVGPUDevice", NAME, {"metadata": {"annotations": {key: value}}})

    def _tune(self) -> None:
        """Request plugin parameters, valid or not, or take the request back."""
        names = list(self.one.store.of("VGPUDevice"))[:4]
        if names:
            value = self.chance.choice(["enable_uvm=1", "frame_rate_limiter=0", "", "bogus=1", None])
            patch = {"metadata": {"annotations": {PARAMETERS_ANNOTATION: value}}}
            self.one.store.patch("VGPUDevice", self.chance.choice(names), patch)

    def check(self) -> None:
        before = {self._device(v): v.parameters for v in alive(self.one).values()}
        self.one.settle()
        after = {self._device(v): v.parameters for v in alive(self.one).values()}
        assert not self.machine or after.get(self.machine) == before[self.machine], "parameters changed under a VM"
        here = after.keys()
        assert not self.machine or self.machine in here, "a VM lost its vGPU"
        assert self.made <= here, "a hand-made vGPU is gone"
        assert self.one.publish() == 0
        assert not self.one.act()
        for (kind, _), body in self.one.store.objects.items():
            self._truth(kind, body)

    def _truth(self, kind: str, body: JSON) -> None:
        """Assert that an object has a condition, and says why if it does not match its request."""
        status, reason = ready(body)
        text = next(c["message"] for c in body["status"]["conditions"] if c["type"] == "Ready")
        assert reason.isalnum()
        assert reason[0].isupper()
        assert text or status == "True"
        assert reason != "Pending", (body, self.one.results, self.one.intents(), self.story)
        if kind == "VGPUDevice" and status == "True":
            vgpu = alive(self.one).get(body["spec"]["address"])
            carried = vgpu.type if vgpu is not None else ""
            assert carried == (body["spec"]["vGPUTypeName"] if body["spec"]["enabled"] else "")
            assert (body["status"].get("vGPUStatus") == "vGPUConfigured") == bool(carried)
            wanted = body["metadata"].get("annotations", {}).get(PARAMETERS_ANNOTATION)
            found = vgpu.parameters if vgpu is not None else None
            assert wanted is None or not carried or found == wanted


@pytest.mark.parametrize("seed", parts(6))
@pytest.mark.parametrize("template", list(TYPES))
def test_it_comes_to_rest_and_loses_nothing_that_is_not_its_own(template: str, seed: int, tmp_path: Path) -> None:
    play = Play(template, tmp_path, random.Random(seed))
    play.do("gpu")
    play.check()
    for _ in range(12):
        play.do(play.chance.choice(OPERATIONS))
        if play.chance.random() < 0.7:
            play.check()
    play.check()


words = st.text("ab", max_size=2)
values = st.recursive(
    st.integers() | words | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(words, values, max_size=4)


@given(documents, documents)
def test_a_difference_is_the_merge_patch_that_leads_there(previous: JSON, wanted: JSON) -> None:
    patch = merge_patch(previous, wanted)
    assert merged(previous, patch) == wanted
    assert (patch == {}) == (previous == wanted)
