"""Putting the devices agent together, and taking it apart in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.errors import BlockedError
from aliquot.foundation import logfmt as logs
from aliquot.foundation import signals
from aliquot.foundation.http_probes import Probes
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.paths import directories
from aliquot.foundation.process_end import leave_if_hung
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.node_agent import driver_root as driver
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher
from aliquot.kubernetes.node_agent.hang_reporter import HangReporter
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.malloc_tuning import limit_heap
from aliquot.kubernetes.node_agent.process_end import run_to_end
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.kubernetes.node_agent.usage_sampler import UsageSampler, sampling_interval_s
from aliquot.kubernetes.virtual_machines.agent import kubelet_pods as given
from aliquot.kubernetes.virtual_machines.agent import launcher_devices as launchers
from aliquot.kubernetes.virtual_machines.agent import node_report
from aliquot.kubernetes.virtual_machines.agent.allocation import VmAllocationPublisher
from aliquot.kubernetes.virtual_machines.agent.document_builder import build_document
from aliquot.kubernetes.virtual_machines.agent.driver_location import DriverLocator
from aliquot.kubernetes.virtual_machines.agent.host_gpus import HostGpus
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.loop import DevicesAgentLoop
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus, NodeStatusReporter
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.agent.options import DevicesAgentOptions
from aliquot.kubernetes.virtual_machines.agent.pcidevices_conflict import pcidevices_pod
from aliquot.kubernetes.virtual_machines.agent.reconciler import Reconciler, RoundResult
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import PCIDEVICES_RUNS, WITHOUT_PCIDEVICES
from aliquot.node.claims import attach_claims
from aliquot.node.connect import Connection, connect, simulated_host

if TYPE_CHECKING:
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.hardware.kernel_files import KernelFiles

CLOSE_S = 5.0


def run(options: DevicesAgentOptions) -> int:
    """Run the agent until SIGTERM, SIGINT or SIGHUP. Raises AliquotError for what is wrong from the start."""
    limit_heap()
    logs.start(log, debug=options.debug)
    return asyncio.run(DevicesAgent(options).run())


class DevicesAgent:
    """All parts of one devices agent."""

    def __init__(self, options: DevicesAgentOptions) -> None:
        self.options = options
        self.metrics = DevicesAgentMetrics(options.node_name)
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace, on_request=self.metrics.record_request)
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.informers = NodeDeviceInformers(self.api, options.node_name, self._wake, self._ended)
        self.host_gpus = HostGpus(self._bus, self._connect, self._wake)
        self.host_gpus.steps = self.metrics.changes.record_step
        self.reporter = NodeStatusReporter(self.informers)
        self.writer = ObjectWriter(self.informers, self.reporter.report_change, self.metrics.count_write)
        self.driver_locator = DriverLocator(self.api, self.informers, options)
        self.offering = DeviceOffering(
            os.path.join(options.kubelet_dir, "device-plugins") if options.kubelet_dir else ""
        )
        self.refusals: tuple[str, ...] = ()
        self.allocations = VmAllocationPublisher(
            self.api,
            options.node_name,
            self._wake,
            uses=given.pod_devices(options.kubelet_dir),
            environment=launchers.environment_reader(self.api),
            ended=self._ended,
        )
        uses = given.uses(options.kubelet_dir)
        self.document_publisher = DocumentPublisher(
            self.api, options.node_name, document.VGPUS, namespace=self.api.namespace, uses=uses
        )
        self.usage_sampler = UsageSampler(
            self.host_gpus,
            uses,
            self._record_usage,
            sampling_interval_s(dict(os.environ)),
            self.host_gpus.read_with_holders,
        )
        self.loop: DevicesAgentLoop | None = None
        self.last_usage = LastUsage()
        self.role = RoleLock("VM agent", directories(options.node)[0], self._pod)
        self.stopping = asyncio.Event()
        self.code = 0

    @property
    def _pod(self) -> str:
        """The agent's own pod as namespace/name, "" outside a pod."""
        return f"{self.api.namespace}/{self.options.pod}" if self.options.pod else ""

    # -- the machine

    def _bus(self) -> KernelFiles:
        if self.options.node is None:
            from aliquot.hardware.kernel_files import RealFiles

            return RealFiles()
        from aliquot.foundation.paths import state_dir
        from aliquot.sim.client import SimClient
        from aliquot.sim.files import SimFiles

        return SimFiles(SimClient(state_dir(), self.options.node))

    def _connect(self, programs: DriverPrograms | None) -> Connection:
        if self.options.node is None and programs is None:
            found = driver.find_driver(self.options.host_root, self.options.driver_root)
            if found.local_root is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = found.local_root
        connection = connect(self.options.node, programs, all_gpus=True, report=log.warning)
        attach_claims(connection, self.options.holders, log.warning)
        connection.by = "agent"
        return connection

    async def _boot(self) -> str:
        from aliquot.hardware.state.journal import boot_id

        return boot_id() if self.simulated is None else await asyncio.to_thread(self.simulated.boot)

    # -- running

    def _wake(self) -> None:
        if self.loop is not None:
            self.loop.wake()

    async def run(self) -> int:
        """Until a signal."""
        ending = ExitStack()
        pages = {"/healthz": self._healthz, "/readyz": self._readyz}
        probes = Probes(pages, {"/metrics": self.metrics.page.answer})
        background: list[asyncio.Task[None]] = []
        try:
            if self.options.port >= 0:
                log.info("health and metrics on port %d", await self._listen(probes))
            ending.enter_context(signals.stop_on_signal(self._stop, asyncio.get_running_loop()))
            if not await self.role.take(self.stopping):
                return self.code
            self.loop = self._assemble()
            await self.informers.start()
            self.allocations.start()
            background += [asyncio.create_task(each) for each in self._background_tasks()]
            for task in background:
                task.add_done_callback(self._ended)
            await run_to_end(self.loop, self.host_gpus)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self.usage_sampler.close()
            await probes.close()
            await self.informers.close()
            await self.allocations.close()
            await self.offering.close()
            with suppress(TimeoutError):  # a driver call that hangs ends with the process
                await asyncio.wait_for(self.host_gpus.close(), CLOSE_S)
            await self.api.aclose()
            self.role.close()
            leave_if_hung(self.code, log.warning)
            ending.close()
        return self.code

    def _stop(self) -> None:
        self.stopping.set()
        if self.loop is not None:
            self.loop.stop()

    def _background_tasks(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What runs beside the loop, for ever."""
        refresh = self.document_publisher.watch_hangs(lambda: self.host_gpus.hang, lambda: self.informers.node)
        files = StateFileReport(directories(self.options.node), self.metrics, self.reporter.warn)
        assert self.loop is not None
        hangs = HangReporter(lambda: self.host_gpus.hang, self.loop.report_hang)
        return self.document_publisher.run(), refresh, hangs.run(), self.usage_sampler.run(), files.run()

    def _assemble(self) -> DevicesAgentLoop:
        reconciler = Reconciler(
            self.informers,
            self.host_gpus,
            self.writer,
            self.metrics,
            locate_driver=self.driver_locator.find,
            uses=given.uses(self.options.kubelet_dir),
            plugins=self.offering,
            boot=self._boot,
        )
        return DevicesAgentLoop(
            self.informers,
            reconciler,
            self.reporter,
            self.metrics,
            idle_status=self._idle_status,
            after_round=self._after_round,
            check_s=self.options.check_s,
        )

    async def _listen(self, probes: Probes) -> int:
        try:
            return await probes.start("", self.options.port)
        except OSError as error:
            raise BlockedError(
                f"cannot listen on port {self.options.port}: {error.strerror or error}",
                next_step="aliquot agent --devices --port 0",
            ) from error

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A part that was to run for ever did not: better to start anew as a whole than to go on deaf."""
        error = None if task.cancelled() else task.exception()
        if error is None or self.loop is None:
            return
        log.error("internal fault: report this, with the output of: aliquot version", exc_info=error)
        self.code = 1
        self.loop.stop()

    # -- what the loop asks

    def _idle_status(self) -> DevicesAgentStatus | None:
        """Why the agent keeps its hands off, None where it need not."""
        other = pcidevices_pod(self.informers.pods.items)
        if other is not None:
            where = f"{other.metadata.namespace}/{other.name}"
            text = (
                f"Harvester's pcidevices reconciles these kinds on this node (pod {where}): nothing is done meanwhile; "
                "its USB and network devices stop with it where it leaves"
            )
            step = f"kubectl label node {self.options.node_name} {WITHOUT_PCIDEVICES}=true, once its DaemonSet "
            step += "leaves out such nodes (docs/coming-from/pcidevices.md, step 3)"
            return DevicesAgentStatus(node_report.IDLE, PCIDEVICES_RUNS, f"{text} | next: {step}")
        absent = self.informers.missing_kinds
        if absent:
            text = f"the cluster does not have {', '.join(absent)} of devices.harvesterhci.io"
            return DevicesAgentStatus(
                node_report.IDLE, "NoCustomResources", f"{text} | next: kubectl apply -f deploy/crds"
            )
        return None

    async def _after_round(self, done: RoundResult | None) -> None:
        """What virtual machines can be given, and what is said of those that have it, follows what is. While somebody
        else is at work, the sockets and the annotations are his.
        """
        self._update_document(done)
        if done is None:
            await self.offering.close()
            return
        if self.offering.directory:
            await self._offer(done)
        await self.allocations.sync(done.view, done.objects, self.informers.pods.items)

    async def _offer(self, done: RoundResult) -> None:
        groups = await self.host_gpus.groups(mdev_functions(done.view.inventory))
        found = offer(done.view, done.objects, groups, self.host_gpus.unhealthy)
        if found.refusals != self.refusals:
            self.refusals = found.refusals
            for sentence in found.refusals:
                log.warning("no virtual machine can have %s", sentence)
        await self.offering.publish(found)

    def _update_document(self, done: RoundResult | None) -> None:
        node = self.informers.node
        if node is None:
            return
        node_document = build_document(done, node.name, self._pod, self.last_usage, self.host_gpus.pasts)
        if node_document is not None:
            self.document_publisher.update(node_document, node.metadata.uid)
        elif self.loop is not None and self.loop.status is not None:
            self.document_publisher.report_unreadable(self.loop.status.sentence, node.metadata.uid)

    def _record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        self.metrics.usage = usage
        self.last_usage = LastUsage(inventory, usage, time.time())

    # -- pages

    def _healthz(self) -> tuple[int, str, bytes]:
        return alive(self.loop.beat if self.loop is not None else None, busy=self.host_gpus.stuck_s > 0)

    def _readyz(self) -> tuple[int, str, bytes]:
        """Not ready: a driver call hangs, another agent of this role works, something was not read yet, the API server
        is away, or what was to be written was not. An agent that leaves the node to another is ready, and says why.
        """
        pending = self.offering.problem or self.allocations.error
        loop_error = (self.loop.error or pending) if self.loop is not None else "it is starting"
        hang = self.host_gpus.hang
        problem = (
            (hang.brief if hang is not None else "")
            or self.role.waiting
            or self.informers.unavailable
            or (f"{self.informers.unsynced} were not read yet" if self.informers.unsynced else loop_error)
        )
        if problem:
            return 503, "text/plain", f"{problem}\n".encode()
        status = self.loop.status if self.loop is not None else None
        text = f"{status.state}: {status.sentence}" if status is not None and status.degraded else "ok"
        if self.document_publisher.problem:
            text += f", but the node's document was not written: {self.document_publisher.problem}"
        return 200, "text/plain", f"{text}\n".encode()
