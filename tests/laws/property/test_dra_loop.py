"""Random histories of the whole claim agent: a scheduler that reads its slices, kills, restarts and drift.

The scheduler decides as kube-scheduler does, and reads what the agent's own loop published. After each step the raw
tables judge what is allocated, and kubelet's answers are compared with the GPU.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from aliquot.core.model.placement import Placement
from aliquot.errors import AliquotError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.dra.agent import preparer
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_status import ClaimStatusWriter
from aliquot.kubernetes.dra.agent.claim_store import ClaimStore
from aliquot.kubernetes.dra.agent.claim_types import AllocatedClaim, AllocatedDevice
from aliquot.kubernetes.dra.agent.loop import ClaimAgentLoop, ClaimKeeper, NodeSlices
from aliquot.kubernetes.dra.agent.metrics import ClaimAgentMetrics
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.agent.prepare_ports import PreparedNode
from aliquot.kubernetes.dra.agent.preparer import ClaimPreparer
from aliquot.kubernetes.dra.agent.stale_claims import GONE_S, StaleClaims
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference, PreparedClaim
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice
from aliquot.kubernetes.kinds.claim_status import (
    AllocationResult,
    ClaimAllocationStatus,
    DeviceResults,
    ResourceClaimStatus,
)
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.draallocator import Published, allocate
from support.drafleet import FleetNode, classes, to_json
from support.selection import everything
from unit.kubernetes.dra.agent.bench import Bench, counted_saves
from unit.kubernetes.dra.agent.slices import NODE, Bed
from unit.kubernetes.dra.model.nodes import NAMING

T = TypeVar("T")
STEP = timedelta(seconds=0.4)
"""Time of a step. A device is tainted for twelve of them before it is removed."""
LAG = 40
"""Steps after which the agent surely sees what was allocated: longer than a device stays tainted. Its own record of
prepared claims has to be enough until then.
"""
RACES = {"FOREIGN_INSTANCE", "HELD"}
"""Refusals of a device that the agent could not hide in time."""


class AgentNode(Bench):
    """A simulated node with the agent's own loop and the slices that it publishes."""

    def __init__(self, directory: Path) -> None:
        self.devices = NodeDevices(NODE.name, NAMING, PublishPolicy())
        self.bed = Bed()
        self.pods: list[str] = []
        self.metrics = ClaimAgentMetrics(NODE.name)
        super().__init__(directory)
        self.bed.server.before = lambda _: self.gpus.count_write()

    def restart(self) -> None:
        self.store = ClaimStore(str(self.directory))
        node = PreparedNode(self.gpus, self.devices.find, self.gpus.boot)
        self.preparer = ClaimPreparer(node, self.store, self.cluster, self.cdi)
        self.bed.restart()
        self.bed.publisher.slices.apply(FullList(tuple(self.bed.server.items.values()), "1"))
        api: Any = SimpleNamespace(patch=self._shown)
        self.claims = ClaimInformer(api, NAMING.driver, self.devices.is_own_pool)
        self.see()
        own = Informer(Node, name=NODE.name)
        own.apply(FullList((NODE,), "1"))
        stale = StaleClaims(self.uses, lambda: self.bed.now.timestamp())
        keeper = ClaimKeeper(self.preparer, self.store, stale, self.gpus.boot)
        status = ClaimStatusWriter(api, self.claims, NAMING.driver)
        slices = NodeSlices(own, self.claims, self.bed.publisher, self.devices.choose, status, dict)
        hardware: Any = self.gpus
        hardware.unhealthy = frozenset()
        self.loop = ClaimAgentLoop(AgentLoop(), hardware, keeper, slices, self.metrics, lambda _: None)

    async def _shown(self, _: object, name: str, __: object, *, namespace: str, subresource: str) -> ResourceClaim:
        """Take the status of a claim."""
        found = self.claims.claims.get(name, namespace)
        assert found is not None
        return found

    async def uses(self) -> Sequence[PodDeviceUse]:
        return [PodDeviceUse("team", name, "main", claim=ClaimedDevice(f"team/{name}", "x")) for name in self.pods]

    def see(self) -> None:
        """Let the agent see the claims of the cluster."""
        self.claims.claims.apply(FullList(tuple(map(_object, self.cluster.claims.values())), "1"))


def _object(made: AllocatedClaim) -> ResourceClaim:
    results = tuple(AllocationResult("r", NAMING.driver, each.pool, each.device) for each in made.devices)
    meta = ObjectMeta(name=made.reference.name, namespace=made.reference.namespace, uid=made.reference.uid)
    return ResourceClaim(
        metadata=meta, status=ResourceClaimStatus(allocation=ClaimAllocationStatus(DeviceResults(results)))
    )


class History:
    """A node under a scheduler, kubelet and an administrator who act at random."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.dice = random.Random(seed)
        self.node = AgentNode(directory)
        self.judge = FleetNode(NODE.name, self.node.gpus.backend.read(), NAMING)
        self.classes = classes([self.judge])
        self.given: dict[str, str] = {}
        """UUID of the device of each pod's claim, as kubelet was answered."""
        self.foreign: set[str] = set()
        self.number = self.kills = self.bound = self.races = self.forgotten = self.unseen = 0
        self.destroy = self.node.gpus.node.backend.destroy_gpu_instance
        self.node.gpus.node.backend.destroy_gpu_instance = self._destroy  # type: ignore[method-assign]

    def _destroy(self, pci: str, instance: int) -> None:
        found = self.node.gpus.gpu().instance(instance)
        assert found is not None
        place = f"{found.profile}@{found.place.start}"
        assert place not in self.foreign, f"the agent destroys {place}, which is not its own"
        assert place not in map(self._place, self.given), f"the agent destroys {place}, in use"
        self.destroy(pci, instance)

    def _device(self, name: str) -> DraDevice:
        found = self.judge.offer.device(self.node.cluster.claims[f"uid-{name}"].devices[0].device)
        assert found is not None
        return found

    def _place(self, name: str) -> str:
        return f"{self._device(name).profile}@{self._device(name).start}"

    @property
    def held(self) -> list[str]:
        return [made.devices[0].device for made in self.node.cluster.claims.values()]

    @property
    def names(self) -> list[str]:
        return [made.reference.name for made in self.node.cluster.claims.values()]

    async def step(self) -> str:
        """Make one random step, check the laws, and return what was done."""
        moves = {
            self.arrive: 9,
            self.depart: 6,
            self.again: 1,
            self.forget: 1,
            self.restart: 1,
            self.reboot: 0.3,
            self.change_by_hand: 1,
        }
        self.node.bed.wait(STEP.total_seconds())
        if self.dice.random() < 0.3:
            self.node.gpus.kill_at = self.node.gpus.writes + self.dice.randint(1, 12)
        done = await self.dice.choices(list(moves), list(moves.values()))[0]()
        self.unseen += 1
        if self.unseen >= LAG or self.dice.random() < 0.1:
            self.unseen = 0
            self.node.see()
        if self.dice.random() < 0.5:  # else the scheduler decides again by the same slices
            await self.cycle()
        self.node.gpus.kill_at = 0
        self.check()
        return done

    async def cycle(self) -> None:
        self.node.pods = list(self.given)
        self.node.bed.server.allocated = frozenset(self.held)
        await self.until_answered(lambda: self.node.loop.cycle())

    def check(self) -> None:
        self.node.bed.server.allocated = frozenset(self.held)
        self.node.bed.server.check()
        instances = {f"{i.profile}@{i.place.start}": i for i in self.node.gpus.gpu().instances}
        assert len(set(self.given.values())) == len(self.given), "a device is given twice"
        for name, uuid in self.given.items():
            found = instances.get(self._place(name))
            assert found is not None, f"{name} lost {self._place(name)}"
            assert [c.uuid for c in found.compute_instances] == [uuid]
            assert [h.id for h in found.holders] == [f"team/{name}"]
        assert self.foreign <= set(instances), "an instance that is not the agent's is lost"

    async def arrive(self) -> str:
        kind = self.dice.choice([name for name in self.classes if name.startswith("mig-")])
        wanted = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": kind}}]}}}
        pool = NAMING.pool(NODE.name)
        held = frozenset((NAMING.driver, pool, name) for name in self.held)
        slices = [to_json(each) for each in self.node.bed.server.items.values()]
        found = allocate([wanted], {"metadata": {"name": NODE.name}}, Published(slices, self.classes, held))
        if found is None:
            return f"no {kind}"
        self.number += 1
        name, device = f"c{self.number}", found[0][0]["device"]
        reference = ClaimReference(f"uid-{name}", "team", name)
        self.node.create(AllocatedClaim(reference, (AllocatedDevice(("r",), pool, device),)))
        assert self.judge.illegal(self.held) == [], "over-committed"
        answer = await self.prepare(name)
        if isinstance(answer, PreparedClaim):
            self.bound += 1
            return f"{name} gets {device}"
        assert answer.code in RACES, answer.brief
        self.races += 1
        await self.end(name)
        return f"{device} is refused: {answer.code}"

    async def prepare(self, name: str) -> PreparedClaim | AliquotError:
        """Call as kubelet does, and again after a kill until there is an answer."""
        made = self.node.cluster.claims[f"uid-{name}"]
        answer = (await self.until_answered(lambda: self.node.prepare(made)))[0]
        if isinstance(answer, PreparedClaim):
            self.given[name] = answer.devices[0].cdi_ids[0].partition("=")[2]
        return answer

    async def prepare_all(self) -> None:
        for name in self.names:
            answer = await self.prepare(name)
            assert isinstance(answer, PreparedClaim), f"{name}: {answer}"

    async def end(self, name: str) -> None:
        made = self.node.cluster.claims[f"uid-{name}"]
        await self.until_answered(lambda: self.node.unprepare(made))
        del self.node.cluster.claims[f"uid-{name}"]

    async def depart(self) -> str:
        count = self.dice.choice((1, 1, 1, 3))
        ended = self.dice.sample(self.names, min(count, len(self.names)))
        for name in ended:
            del self.given[name]
            await self.end(name)
        return f"{' '.join(ended) or 'nothing'} ends"

    async def again(self) -> str:
        await self.prepare_all()
        return "kubelet asks again"

    async def forget(self) -> str:
        """Delete a pod and its claim while kubelet is away: it never releases them."""
        if not self.names:
            return "nothing to forget"
        name = self.dice.choice(self.names)
        del self.given[name]
        del self.node.cluster.claims[f"uid-{name}"]
        self.forgotten += 1
        if self.dice.random() < 0.5:
            self.node.gpus.kill_at = 0
            self.node.see()
            await self.cycle()
            self.node.bed.wait(GONE_S)
            await self.cycle()
            assert {each.name for each in self.node.recorded().claims} == set(self.names)
        return f"{name} is forgotten"

    async def restart(self) -> str:
        self.node.gpus.kill_at = 0
        self.node.restart()
        self.unseen = 0
        return "restart"

    async def reboot(self) -> str:
        self.node.gpus.reboot()
        self.foreign.clear()
        self.given.clear()
        await self.restart()
        await self.prepare_all()
        return "reboot"

    async def change_by_hand(self) -> str:
        """Create an instance in free room, or destroy one, which may be in use."""
        self.node.gpus.kill_at = 0
        gpu, backend = self.node.gpus.gpu(), self.node.gpus.node.backend
        taken = 0
        for place in (*(i.place for i in gpu.instances), *(self._slices(self._device(name)) for name in self.names)):
            taken |= place.mask
        room = [d for d in self.judge.offer.devices if not d.whole and not self._slices(d).mask & taken]
        if room and self.dice.random() < 0.6:
            device = self.dice.choice(room)
            try:
                backend.create_gpu_instance(gpu.pci, device.place[1], device.start, self._slices(device).size)
            except AliquotError:
                return f"{device.name} does not fit"
            self.foreign.add(f"{device.profile}@{device.start}")
            return f"{device.name} is created by hand"
        if not gpu.instances:
            return "nothing to destroy"
        gone = self.dice.choice(gpu.instances)
        for part in gone.compute_instances:
            backend.destroy_compute_instance(gpu.pci, gone.id, part.id)
        self.destroy(gpu.pci, gone.id)
        self.foreign.discard(f"{gone.profile}@{gone.place.start}")
        await self.cycle()
        await self.prepare_all()
        return f"{gone.profile}@{gone.place.start} is destroyed by hand"

    @staticmethod
    def _slices(device: DraDevice) -> Placement:
        return Placement(device.start, device.mask.bit_count())

    async def until_answered(self, call: Callable[[], Awaitable[T]]) -> T:
        return await self.node.until_answered(call, self.after_kill)

    async def after_kill(self) -> None:
        self.kills += 1
        await self.restart()


def test_the_agent_keeps_what_the_scheduler_gave(tmp_path: Path) -> None:
    seed = os.environ.get("ALIQUOT_SEED", "claim loop")
    steps = 100_000 if everything() else 2_000
    print(f"seed {seed!r}: set ALIQUOT_SEED to repeat it")

    async def play() -> None:
        history = History(tmp_path, seed)
        with counted_saves(history.node.gpus), patch.object(preparer, "GATHER_S", 0.0):
            await history.cycle()
            for number in range(steps):
                print(number, await history.step())
        print(f"{history.bound} bound, {history.races} races, {history.kills} kills, {history.forgotten} forgotten")
        assert history.bound > steps / 20
        assert history.kills > steps / 50
        assert history.forgotten > steps / 100

    asyncio.run(play())
