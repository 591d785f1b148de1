"""Claims for VMs come and go: the scheduler adds up counters, and each claim that it allocates can be prepared."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Gpu
from aliquot.kubernetes.dra.agent.loop import NodeOffer
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.model.counters import fits, taken
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.ranking import PublishedChoice, PublishPolicy
from aliquot.kubernetes.dra.model.vm_service import read_vm_policy
from aliquot.kubernetes.dra.plugin.claim_service import PreparedClaim
from support.selection import dice, samples
from unit.kubernetes.dra.agent.bench import Bench, claim, run

STEPS = 90
NODES = {
    "a30:vfio": "all=A30-6C+mig-backed",
    "l40s:vfio*2": "all=L40S-12Q",
    "h100-80gb-hbm3:vfio": "all=H100XM-20C+mig-backed",
    "tesla-t4:mdev": "all=T4-4Q",
}


class Story:
    """A node, its scheduler and its claims: the device of each by name."""

    def __init__(self, folder: Path, template: str) -> None:
        policy = PublishPolicy(layout=SliceLayout(gpus_per_slice=1))
        self.devices = NodeDevices("n", DriverNaming(), policy, "any", read_vm_policy(NODES[template]))
        self.bench = Bench(folder, template, mig=False, find=self.devices.find)
        self.claims: dict[str, DraDevice] = {}
        self.made = 0

    def published(self) -> PublishedChoice:
        created = frozenset(self.bench.store.records.created)
        allocated = frozenset(device.name for device in self.claims.values())
        return self.devices.choose(
            NodeOffer(self.bench.gpus.backend.read(), allocated, frozenset(), created, frozenset())
        )

    def free(self) -> list[DraDevice]:
        """Return what the scheduler can allocate, by the counters of all claims."""
        found = self.published()
        totals = {each.name: each.counters for each in found.counter_sets}
        names = {device.name for device in self.claims.values()}

        def fitting(device: DraDevice) -> bool:
            others = (each.uses for each in self.claims.values() if each.counter_set == device.counter_set)
            return device.name not in names and fits(device.uses, taken(others), totals[device.counter_set])

        return [device for device in found.devices if fitting(device)]

    async def step(self, random: random.Random) -> None:
        free = self.free()
        if self.claims and (not free or random.random() < 0.45):
            name = random.choice(sorted(self.claims))
            await self.bench.unprepare(claim(name, self.claims.pop(name).name))
            return
        device = random.choice(free)
        self.made += 1
        name = f"c{self.made}"
        (answer,) = await self.bench.prepare(claim(name, device.name))
        assert isinstance(answer, PreparedClaim), (device.name, [d.name for d in self.claims.values()], answer)
        self.claims[name] = device

    def check(self) -> None:
        """Check that every claim has its device, and no two have the same."""
        records = {each.name: each.devices[0] for each in self.bench.recorded().claims}
        assert records.keys() == self.claims.keys()
        uuids = [record.uuid for record in records.values()]
        assert len(uuids) == len(set(uuids))
        gpus = self.bench.gpus.backend.read().gpus
        for name, device in self.claims.items():
            assert _holds(next(gpu for gpu in gpus if gpu.pci == device.pci), name), name


def _holds(gpu: Gpu, name: str) -> bool:
    holders = [str(each) for each in (*gpu.holders, *(h for vgpu in gpu.vgpus for h in vgpu.holders))]
    return f"claim team/{name}" in holders


@pytest.mark.parametrize("template", NODES)
def test_whatever_the_scheduler_allocates_is_prepared(tmp_path: Path, template: str) -> None:
    story, random = Story(tmp_path, template), dice(f"vm claims {template}")

    async def tell() -> None:
        for _ in range(samples(STEPS)):
            await story.step(random)
            story.check()

    run(tell())
    assert story.made > 3
