"""The cycles of the claim agent: observe, keep the prepared claims, publish. Kubelet's calls do not wait for them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_status import ClaimProblems, ClaimStatusWriter
from aliquot.kubernetes.dra.agent.claim_store import ClaimStore
from aliquot.kubernetes.dra.agent.metrics import WAITING, WORKING, ClaimAgentMetrics
from aliquot.kubernetes.dra.agent.preparer import ClaimPreparer
from aliquot.kubernetes.dra.agent.slice_publisher import SlicePublisher
from aliquot.kubernetes.dra.agent.stale_claims import StaleClaims
from aliquot.kubernetes.dra.model.ranking import PublishedChoice
from aliquot.kubernetes.dra.plugin.claim_service import DeviceState
from aliquot.kubernetes.node_agent.agent_loop import UNREAD_S, AgentLoop
from aliquot.node.holders.prepared_claims import CreatedInstance

CHECK_S = 30.0
"""Longest time in seconds until a change by hand is found."""


class NodeOffer(msgspec.Struct, frozen=True):
    """The state of a node from which its publication follows."""

    inventory: Inventory
    allocated: frozenset[str]
    """Names of the devices that claims have."""
    unhealthy: frozenset[str]
    """UUIDs of GPUs and MIG devices that must not be allocated."""
    created: frozenset[CreatedInstance]
    """The instances that were created for claims. Others stay, even if they are idle."""
    published: frozenset[str]
    """Names of the devices that are published now."""
    facts: Facts | None = None
    """Facts of the driver and the boards, for the attributes of devices."""


ChooseDevices = Callable[[NodeOffer], PublishedChoice]


class ReadableGpus(Protocol):
    """The part of ``GpuWorker`` that an observation needs."""

    @property
    def unhealthy(self) -> frozenset[str]: ...

    async def read(self) -> tuple[Inventory, Facts]: ...


class ClaimKeeper(msgspec.Struct, frozen=True, eq=False):
    """The prepared claims of a node."""

    preparer: ClaimPreparer
    store: ClaimStore
    stale: StaleClaims
    boot: Callable[[], Awaitable[str]]

    async def keep(self, known: frozenset[str] | None) -> None:
        """Release claims that do not exist any more, and create again what the others have lost.

        ``known`` are the uids of allocated claims; None if they are not known now. Raises AliquotError.
        """
        gone = await self.stale.find(self.store.records.claims, known, await self.boot())
        for each in gone:
            log.warning("%s does not exist any more, and no pod has it: its devices are released", each)
        for error in (await self.preparer.unprepare(gone)).values() if gone else ():
            if error is not None:
                raise error
        await self.preparer.restore()

    @property
    def devices(self) -> frozenset[str]:
        """Names of the devices of prepared claims, other than by admin access."""
        return frozenset(d.device for claim in self.store.records.claims for d in claim.devices if not d.shared)


class NodeSlices(msgspec.Struct, frozen=True, eq=False):
    """The publication of a node. ``node`` follows the node's own object. ``health`` is that of the chosen devices."""

    node: Informer[Node]
    claims: ClaimInformer
    publisher: SlicePublisher
    choose: ChooseDevices
    status: ClaimStatusWriter
    health: Callable[[], Mapping[tuple[str, str], DeviceState]]

    @property
    def unread(self) -> str:
        """The reason why nothing can be published yet; empty if there is none."""
        if not self.node.items:
            return self.node.unavailable or "the node's object is not read yet"
        if not self.publisher.slices.synced or self.publisher.problem:
            return self.publisher.problem or "the ResourceSlices are not read yet"
        return ""

    async def publish(
        self, inventory: Inventory, facts: Facts, unhealthy: frozenset[str], keeper: ClaimKeeper
    ) -> float | None:
        """Write what differs. Return the seconds until the next write is due, None if none is. Raises AliquotError."""
        allocated = self.claims.allocated
        taken = (allocated or frozenset()) | keeper.devices
        published = frozenset(device.name for device in self.publisher.published.devices)
        created = frozenset(keeper.store.records.in_boot(await keeper.boot()).created)
        chosen = self.choose(NodeOffer(inventory, taken, unhealthy, created, published, facts))
        return await self.publisher.publish(chosen, None if allocated is None else taken, self.node.items[0])

    async def report(self, inventory: Inventory, keeper: ClaimKeeper) -> None:
        """Let the claims show their devices."""
        problems = ClaimProblems(inventory, await keeper.boot(), keeper.preparer.missing, self.health())
        await self.status.write(keeper.store.records.claims, problems)


class ClaimAgentLoop:
    """The work of each cycle of ``loop``. ``observed`` is called with the GPUs as they were read."""

    def __init__(
        self,
        loop: AgentLoop,
        hardware: ReadableGpus,
        keeper: ClaimKeeper,
        slices: NodeSlices,
        metrics: ClaimAgentMetrics,
        observed: Callable[[Inventory], None],
    ) -> None:
        self._loop = loop
        self._hardware = hardware
        self._keeper = keeper
        self._slices = slices
        self._metrics = metrics
        self._observed = observed
        self._writes = 0

    async def run(self) -> None:
        """Run until the loop is stopped."""
        await self._loop.run(self.cycle, _defect)

    async def cycle(self) -> float:
        """Observe once, and return the seconds until the next observation."""
        try:
            pause = await self._cycle()
        finally:
            self._record()
        return pause

    async def _cycle(self) -> float:
        inventory, facts = await self._hardware.read()
        unhealthy = self._hardware.unhealthy
        self._metrics.record_observation(inventory, time.time(), len(unhealthy))
        self._observed(inventory)
        await self._keeper.keep(self._slices.claims.uids)
        if unread := self._slices.unread:
            self._loop.error = unread
            return UNREAD_S
        wait = await self._slices.publish(inventory, facts, unhealthy, self._keeper)
        await self._slices.report(inventory, self._keeper)
        self._loop.error = ""
        return min(each for each in (CHECK_S, wait, self._keeper.stale.due_s) if each is not None)

    def _record(self) -> None:
        publisher, lost = self._slices.publisher, self._keeper.preparer.missing
        self._metrics.record_claims(len(self._keeper.store.records.claims), len(lost))
        self._metrics.record_slices(
            sum(len(each.spec.devices) for each in publisher.slices.items), publisher.writes - self._writes
        )
        self._writes = publisher.writes
        self._metrics.set_state(WAITING if self._loop.error or lost else WORKING)


def _defect(error: Exception) -> AliquotError:
    """Return an unexpected exception as the error of a whole cycle."""
    return AliquotError(f"internal error: {type(error).__name__}: {error}"[:300])
