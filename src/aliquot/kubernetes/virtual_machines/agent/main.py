"""Assembly of the devices agent, and its orderly shutdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.errors import Message
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import agent_log as log
from aliquot.hardware.kernel.pci_ids import pci_names, system_databases
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.kinds.harvester_peripherals import QEMU_USER
from aliquot.kubernetes.node_agent.agent_context import AgentContext
from aliquot.kubernetes.node_agent.agent_run import RoleStart
from aliquot.kubernetes.node_agent.hang_reporter import HangReporter
from aliquot.kubernetes.node_agent.kubelet_pods import resource_uses
from aliquot.kubernetes.node_agent.shared_parts import AgentRole, Job, SharedParts
from aliquot.kubernetes.virtual_machines.agent import launcher_devices as launchers
from aliquot.kubernetes.virtual_machines.agent.allocation import VmAllocationPublisher
from aliquot.kubernetes.virtual_machines.agent.document_builder import build_document
from aliquot.kubernetes.virtual_machines.agent.driver_location import DriverLocator
from aliquot.kubernetes.virtual_machines.agent.function_binder import node_addresses
from aliquot.kubernetes.virtual_machines.agent.host_gpus import HostGpus
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.loop import DevicesAgentLoop
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus, NodeStatusReporter
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.agent.options import DevicesAgentOptions
from aliquot.kubernetes.virtual_machines.agent.pcidevices_conflict import pcidevices_conflict
from aliquot.kubernetes.virtual_machines.agent.peripherals import HostPeripherals
from aliquot.kubernetes.virtual_machines.agent.reconciler import Reconciler, RoundResult
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import PCIDEVICES_RUNS

if TYPE_CHECKING:
    from aliquot.hardware.kernel_files import KernelFiles

ROLE = AgentRole("VM agent", "--devices", document.VGPUS, all_gpus=True)


def start(options: DevicesAgentOptions) -> RoleStart:
    """Return how a process gets this role."""
    return RoleStart(ROLE, options, lambda shared: DevicesAgent(options, shared))


class DevicesAgent:
    """A devices agent with all its parts."""

    def __init__(self, options: DevicesAgentOptions, shared: SharedParts) -> None:
        self.options = options
        self.metrics = DevicesAgentMetrics(options.node_name, shared.metrics)
        context = self.context = AgentContext(shared, ROLE, self.metrics)
        loop = context.loop
        self.informers = NodeDeviceInformers(context.api, shared.node, loop.wake, all_devices=options.all_devices)
        names = pci_names(system_databases(options.host_root)) if options.all_devices else None
        self.gpus = HostGpus(self._bus, shared.hardware, shared.connect, names, options.host_root)
        self.peripherals = (
            HostPeripherals(self._bus, lambda: node_addresses(self.informers.node)) if options.all_devices else None
        )
        self.reporter = NodeStatusReporter(self.informers, reports_hangs=len(shared.roles) == 1)
        self.allocations = VmAllocationPublisher(
            context.api,
            options.node_name,
            loop.wake,
            uses=resource_uses(options.kubelet_dir),
            environment=launchers.environment_reader(context.api),
            ended=loop.part_ended,
        )
        self.rounds = self._assemble()
        self._refusals = NewWarnings(log)

    def _bus(self) -> KernelFiles:
        if self.options.node is None:
            from aliquot.hardware.kernel_files import RealFiles

            return RealFiles()
        from aliquot.foundation.paths import state_dir
        from aliquot.sim.client import SimClient
        from aliquot.sim.files import SimFiles

        return SimFiles(SimClient(state_dir(), self.options.node))

    def _assemble(self) -> DevicesAgentLoop:
        context = self.context
        reconciler = Reconciler(
            self.informers,
            self.gpus,
            ObjectWriter(self.informers, self.reporter.report_change, self.metrics.count_write),
            self.metrics,
            locate_driver=DriverLocator(context.api, self.informers, self.options).find,
            uses=context.uses,
            plugins=context.offering,
            boot=context.shared.boot,
            peripherals=self.peripherals,
        )
        return DevicesAgentLoop(
            context.loop,
            self.informers,
            reconciler,
            self.reporter,
            self.metrics,
            idle_status=self._idle_status,
            after_round=self._after_round,
            check_s=self.options.check_s,
        )

    async def start(self) -> tuple[Job, Sequence[Job]]:
        """Start the watches. Return the agent's loop, and the jobs that run beside it."""
        self.allocations.start()
        hangs = HangReporter(self.rounds.report_hang)
        reports = self.context.reports(self.reporter.events.warn)
        return self.rounds.run(), (
            self.informers.follow(self.context.api),
            hangs.run(),
            *reports,
            *([] if self.peripherals is None else [self.peripherals.watch(self.context.loop.wake)]),
        )

    async def close(self) -> None:
        """Stop what ``start`` started, also after a failure in the middle."""
        await self.allocations.close()

    # -- callbacks of the loop

    def _idle_status(self) -> DevicesAgentStatus | None:
        """Return why the agent must not act; None if it may."""
        why = pcidevices_conflict(self.informers.pods.items, self.informers.node, all_devices=self.options.all_devices)
        if why is not None:
            return DevicesAgentStatus("idle", PCIDEVICES_RUNS, str(why))
        absent = self.informers.missing_kinds
        if absent:
            text = f"the cluster does not have {', '.join(absent)} of devices.harvesterhci.io"
            why = Message(text, "kubectl apply -f deploy/crds")
            return DevicesAgentStatus("idle", "NoCustomResources", str(why))
        return None

    async def _after_round(self, done: RoundResult | None) -> None:
        """Update device plugins and annotations after a round.

        While another controller manages the node, its sockets and annotations are left alone.
        """
        self._update_document(done)
        if done is None:
            await self.context.offering.close()
            return
        if self.context.offering.directory:
            await self._offer(done)
        await self.allocations.sync(done.view, done.objects, self.informers.pods.items)

    async def _offer(self, done: RoundResult) -> None:
        groups = await self.gpus.groups(mdev_functions(done.view.inventory))
        owner = QEMU_USER if self.options.node is None else None  # a simulated device has no file on this host
        found = offer(done.view, done.objects, groups, self.gpus.unhealthy, owner=owner)
        self._refusals.update(tuple(f"no VM can have {device}" for device in found.refusals))
        await self.context.offering.publish(found)

    def _update_document(self, done: RoundResult | None) -> None:
        node, context = self.informers.node, self.context
        if node is None:
            return
        node_document = build_document(done, node.name, context.pod, context.last_usage, self.gpus.pasts)
        if node_document is not None:
            context.document_publisher.update(node_document, node.metadata.uid)
        elif self.rounds.status is not None:
            context.document_publisher.report_unreadable(self.rounds.status.sentence, node.metadata.uid)

    @property
    def problem(self) -> str:
        """The reason why the agent is not ready: unread state, an unreachable API server, or a failed write."""
        if self.informers.unavailable or self.informers.unsynced:
            return self.informers.unavailable or f"{self.informers.unsynced} were not read yet"
        return self.context.loop.error or self.context.offering.problem or self.allocations.error

    @property
    def status(self) -> str:
        """The agent's status. An agent that leaves the node to another controller is ready, and gives the reason."""
        status = self.rounds.status
        return f"{status.state}: {status.sentence}" if status is not None and status.degraded else "ok"
