"""Assembly of the claim agent, and its orderly shutdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.foundation import driver_calls
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_status import ClaimStatusWriter
from aliquot.kubernetes.dra.agent.claim_store import ClaimStore
from aliquot.kubernetes.dra.agent.loop import ClaimAgentLoop, ClaimKeeper, NodeSlices
from aliquot.kubernetes.dra.agent.metrics import ClaimAgentMetrics
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.agent.prepare_ports import CdiNames, PreparedNode
from aliquot.kubernetes.dra.agent.preparer import ClaimPreparer
from aliquot.kubernetes.dra.agent.slice_publisher import SlicePublisher
from aliquot.kubernetes.dra.agent.stale_claims import StaleClaims
from aliquot.kubernetes.dra.agent.vm_hardware import VmHardware
from aliquot.kubernetes.dra.plugin.claim_service import ClaimService, DeviceState
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.node_agent.agent_context import AgentContext
from aliquot.kubernetes.node_agent.agent_run import RoleStart
from aliquot.kubernetes.node_agent.event_writer import EventWriter
from aliquot.kubernetes.node_agent.shared_parts import AgentOptions, AgentRole, Job, SharedParts
from aliquot.node.driver_root import DriverLocation

ROLE = AgentRole("claim agent", "--claims", document.GPUS, resources="nvidia.com/")


class ClaimServer(Protocol):
    """The sockets on which kubelet finds the driver. ``problem`` is why kubelet does not use them; empty if it does."""

    @property
    def problem(self) -> str: ...

    async def start(self, service: ClaimService) -> None:
        """Serve until ``close``. Raises OtherDriverError if another driver of this name serves the node."""
        ...

    async def close(self) -> None:
        """Stop serving. Does nothing if it was not started."""
        ...

    def report_health(self, states: Mapping[tuple[str, str], DeviceState]) -> None:
        """Replace what kubelet knows of the health of devices, by pool and name."""
        ...


LocateDriver = Callable[[], DriverLocation]


class DraDriver(msgspec.Struct, frozen=True, eq=False):
    """The outside of a DRA driver: its devices, and the way in which kubelet and containers reach them."""

    devices: NodeDevices
    server: ClaimServer
    cdi: Callable[[LocateDriver], CdiNames]


class ClaimAgentOptions(AgentOptions, frozen=True, kw_only=True):
    """Options of the claim agent."""

    driver: DraDriver


def start(options: ClaimAgentOptions) -> RoleStart:
    """Return how a process gets this role."""
    return RoleStart(_role(options), options, lambda shared: ClaimAgent(options, shared))


def _role(options: ClaimAgentOptions) -> AgentRole:
    return msgspec.structs.replace(ROLE, all_gpus=options.driver.devices.serves_vms)


class ClaimAgent:
    """The parts of a claim agent."""

    def __init__(self, options: ClaimAgentOptions, shared: SharedParts) -> None:
        self.options = options
        driver = options.driver
        self.metrics = ClaimAgentMetrics(options.node_name, shared.metrics)
        context = self.context = AgentContext(shared, _role(options), self.metrics)
        wake = context.loop.wake
        self.node = shared.node
        self.node.listen(lambda _: wake(), lambda node: node.metadata.uid)
        devices = driver.devices
        self.claims = ClaimInformer(context.api, devices.naming.driver, devices.is_own_pool, wake)
        self.publisher = SlicePublisher(context.api, options.node_name, devices.naming, wake, devices.layout)
        self.hardware = VmHardware(shared.hardware) if devices.serves_vms else shared.hardware
        self.preparer: ClaimPreparer | None = None
        self._store: ClaimStore | None = None

    async def start(self) -> tuple[Job, Sequence[Job]]:
        """Start serving and watching. Return the agent's loop, and the jobs that run forever beside it.

        Raises OtherDriverError if another driver of this name serves the node.
        """
        context, shared, driver = self.context, self.context.shared, self.options.driver
        await self._refuse_other_slices()
        store = self._store = ClaimStore(context.directories[1])
        node = PreparedNode(self.hardware, driver.devices.find, shared.boot, context.uses)
        cdi = driver.cdi(lambda: shared.driver)
        wake = context.loop.wake
        preparer = self.preparer = ClaimPreparer(node, store, self.claims, cdi, changed=wake, listener=self.metrics)
        await cdi.remove_others({claim.uid for claim in store.records.claims})
        await driver.server.start(preparer)
        keeper = ClaimKeeper(preparer, store, StaleClaims(context.uses), shared.boot)
        devices = driver.devices
        status = ClaimStatusWriter(context.api, self.claims, devices.naming.driver)
        slices = NodeSlices(self.node, self.claims, self.publisher, devices.choose, status, lambda: devices.health)
        loop = ClaimAgentLoop(context.loop, self.hardware, keeper, slices, self.metrics, self._update_document)
        events = EventWriter(context.api, names.FIELD_MANAGER, self.options.node_name)
        followed = (self.claims.claims, self.publisher.slices)
        return loop.run(), (
            *(informer.follow(context.api) for informer in followed),
            *context.reports(events.warn),
        )

    async def close(self) -> None:
        """Stop serving, and let the change that runs end."""
        await self.options.driver.server.close()
        if self.preparer is not None:
            hardware = self.context.shared.hardware
            await self.preparer.close(lambda: driver_calls.oldest_s() >= hardware.patience_s)

    async def _refuse_other_slices(self) -> None:
        """Read the slices once, because an agent that starts must know whose they are. Raises OtherDriverError."""
        try:
            await self.publisher.read_again()
        except ApiError as error:
            log.warning("%s: claims that are already prepared are served meanwhile", error.one_line)

    def _update_document(self, inventory: Inventory) -> None:
        driver = self.options.driver
        driver.server.report_health(driver.devices.health)
        node = self.node.node
        if node is None:
            return
        named = msgspec.structs.replace(inventory, node=node.name)
        runs = self.context.shared.hardware.past_runs
        usage = self.context.last_usage.current_usage(inventory, runs)
        found = document.NodeDocument(
            inventory=named,
            pod=self.context.pod,
            claims_driver=driver.devices.naming.driver,
            usage=usage,
            past_runs=tuple(runs),
        )
        self.context.document_publisher.update(found, node.metadata.uid)

    @property
    def problem(self) -> str:
        """Reason why the agent is not ready: unread objects, a failed cycle, an unwritten record, or no kubelet."""
        unwritten = self._store.problem if self._store is not None else ""
        return unwritten or self.context.loop.error or self.options.driver.server.problem

    @property
    def status(self) -> str:
        """Text for the readiness page of an agent that is ready."""
        records = self._store.records if self._store is not None else None
        prepared = len(records.claims) if records is not None else 0
        lost = len(self.preparer.missing) if self.preparer is not None else 0
        more = f", {lost} of them without their device" if lost else ""
        return f"ok: {prepared} claims are prepared{more}"
