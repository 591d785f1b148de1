"""Random histories of claims: no held instance is lost, and none is given twice.

A history has claims that come and go, kubelet's repeated calls, kills at any write of the driver or the record,
restarts, reboots, and changes by hand. The law is checked after each step, against what kubelet was answered.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from aliquot.core.model.placement import Placement
from aliquot.errors import AliquotError
from aliquot.kubernetes.dra.agent.claim_types import AllocatedClaim
from aliquot.kubernetes.dra.plugin.claim_service import PreparedClaim
from support.selection import everything
from unit.kubernetes.dra.agent.bench import Bench, claim, counted_saves

SLICES = {
    "1g.5gb": (19, 1, range(7)),
    "2g.10gb": (14, 2, (0, 2, 4)),
    "3g.20gb": (9, 4, (0, 4)),
    "7g.40gb": (0, 8, (0,)),
}
"""Of each profile: its id, its memory slices, its starts."""


class History:
    """A node under a random scheduler, kubelet and administrator."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.dice = random.Random(seed)
        self.bench = Bench(directory)
        self.allocated: dict[str, AllocatedClaim] = {}
        self.given: dict[str, str] = {}
        """UUID of each claim's device, as kubelet was answered."""
        self.foreign: set[str] = set()
        self.number = 0
        self.kills = 0
        self._refuse_destroying_held()

    def _refuse_destroying_held(self) -> None:
        gpus = self.bench.gpus
        destroy = gpus.node.backend.destroy_gpu_instance

        def checked(pci: str, instance: int) -> None:
            found = gpus.gpu().instance(instance)
            assert found is not None
            place = f"{found.profile}@{found.place.start}"
            assert place not in self.foreign, f"the agent destroys {place}, which is not its own"
            assert place not in {self._place(name) for name in self.given}, f"the agent destroys {place}, in use"
            destroy(pci, instance)

        gpus.node.backend.destroy_gpu_instance = checked  # type: ignore[method-assign]
        self.by_hand = destroy

    def _place(self, name: str) -> str:
        _, _, _, profile, start = self.allocated[name].devices[0].device.split("-")
        return f"{profile}@{start}"

    def free_places(self) -> list[str]:
        """Return the places that a scheduler may allocate: they overlap no allocated device and no foreign instance."""
        taken = 0
        for place in (*map(self._place, self.allocated), *self.foreign):
            taken |= _mask(place)
        return [
            f"{profile}@{start}"
            for profile, (_, _, starts) in SLICES.items()
            for start in starts
            if not _mask(f"{profile}@{start}") & taken
        ]

    async def step(self) -> str:
        """Make one random step, check the law, and return what was done."""
        moves = {self.new: 8, self.release: 7, self.again: 2, self.restart: 1, self.reboot: 1, self.hand: 3}
        if self.dice.random() < 0.8:
            self.bench.gpus.kill_at = self.bench.gpus.writes + self.dice.randint(1, 12)
        done = await self.dice.choices(list(moves), list(moves.values()))[0]()
        self.bench.gpus.kill_at = 0
        self.check()
        return done

    def check(self) -> None:
        instances = {f"{i.profile}@{i.place.start}": i for i in self.bench.gpus.gpu().instances}
        assert len(set(self.given.values())) == len(self.given)
        for name, uuid in self.given.items():
            found = instances.get(self._place(name))
            assert found is not None, f"{name} lost {self._place(name)}"
            assert [c.uuid for c in found.compute_instances] == [uuid]
            assert [h.id for h in found.holders] == [f"team/{name}"]
        assert self.foreign <= set(instances)

    async def new(self) -> str:
        places = self.free_places()
        if not places:
            return "no room"
        wanted = self.dice.choice(sorted({place.partition("@")[0] for place in places}))
        profile, _, start = self.dice.choice([p for p in places if p.startswith(wanted)]).partition("@")
        self.number += 1
        name = f"c{self.number}"
        self.allocated[name] = claim(name, f"gpu-0-mig-{profile}-{start}")
        return await self.prepare(name)

    async def again(self) -> str:
        return await self.prepare(self.dice.choice(list(self.allocated))) if self.allocated else "nothing to repeat"

    async def prepare(self, name: str) -> str:
        """Call as kubelet does, and again after a kill until there is an answer."""
        made = self.allocated[name]
        found = await self.bench.until_answered(lambda: self.bench.prepare(made), self.after_kill)
        assert isinstance(found[0], PreparedClaim), f"{name}: {found[0]}"
        self.given[name] = found[0].devices[0].cdi_ids[0].partition("=")[2]
        return f"prepare {name} {self._place(name)}"

    async def release(self) -> str:
        if not self.allocated:
            return "nothing to release"
        count = self.dice.choice((1, 1, 1, len(self.allocated)))
        ended = self.dice.sample(sorted(self.allocated), count)
        for name in ended:
            self.given.pop(name, None)  # the pod has ended
        claims = [self.allocated[name] for name in ended]
        await self.bench.until_answered(lambda: self.bench.unprepare(*claims), self.after_kill)
        for name in ended:
            del self.allocated[name]
        return f"release {' '.join(ended)}"

    async def after_kill(self) -> None:
        self.kills += 1
        await self.restart()

    async def restart(self) -> str:
        self.bench.gpus.kill_at = 0
        self.bench.restart()
        await self.bench.preparer.restore()
        return "restart"

    async def reboot(self) -> str:
        self.bench.gpus.kill_at = 0
        self.bench.gpus.reboot()
        self.foreign.clear()
        self.given.clear()
        self.bench.restart()
        if self.dice.random() < 0.5:
            await self.bench.preparer.restore()
        for name in self.allocated:
            await self.prepare(name)
        return "reboot"

    async def hand(self) -> str:
        """Change the GPU by hand: destroy an instance, also one in use, or create one in free room."""
        self.bench.gpus.kill_at = 0
        gpu, backend = self.bench.gpus.gpu(), self.bench.gpus.node.backend
        taken = 0
        for each in gpu.instances:
            taken |= each.place.mask
        room = [place for place in self.free_places() if not _mask(place) & taken]
        if room and self.dice.random() < 0.4:
            place = self.dice.choice(room)
            profile, _, start = place.partition("@")
            ident, size, _ = SLICES[profile]
            try:
                backend.create_gpu_instance(gpu.pci, ident, int(start), size)
            except AliquotError:
                return f"{place} does not fit"
            self.foreign.add(place)
            return f"create {place} by hand"
        if not gpu.instances:
            return "nothing to destroy"
        gone = self.dice.choice(gpu.instances)
        for part in gone.compute_instances:
            backend.destroy_compute_instance(gpu.pci, gone.id, part.id)
        self.by_hand(gpu.pci, gone.id)
        self.foreign.discard(f"{gone.profile}@{gone.place.start}")
        await self.bench.preparer.restore()
        for name in list(self.given):
            await self.prepare(name)
        return f"destroy {gone.profile}@{gone.place.start} by hand"


def _mask(place: str) -> int:
    profile, _, start = place.partition("@")
    return Placement(int(start), SLICES[profile][1]).mask


@pytest.mark.parametrize("part", range(3))
def test_no_held_instance_is_lost_and_none_given_twice(tmp_path: Path, part: int) -> None:
    seed = os.environ.get("ALIQUOT_SEED", f"claims {part}")
    steps = 2000 if everything() else 100
    print(f"seed {seed!r}: set ALIQUOT_SEED to repeat it")

    async def play() -> None:
        history = History(tmp_path, seed)
        with counted_saves(history.bench.gpus):
            for number in range(steps):
                print(number, await history.step())
        assert history.kills > steps / 20

    asyncio.run(play())
