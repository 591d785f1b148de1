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
from aliquot.kubernetes.node_agent.document_publisher import Showing
from aliquot.kubernetes.node_agent.gc_tuning import be_frugal
from aliquot.kubernetes.node_agent.hang_reporter import HangReporter
from aliquot.kubernetes.node_agent.last_usage import Used
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.process_end import run_to_end
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.kubernetes.node_agent.usage_sampler import Using, every_s
from aliquot.kubernetes.virtual_machines.agent import kubelet_pods as given
from aliquot.kubernetes.virtual_machines.agent import launcher_devices as launchers
from aliquot.kubernetes.virtual_machines.agent import node_report as tell
from aliquot.kubernetes.virtual_machines.agent.allocation import Allocations
from aliquot.kubernetes.virtual_machines.agent.device_offering import Offering
from aliquot.kubernetes.virtual_machines.agent.document_builder import of_round
from aliquot.kubernetes.virtual_machines.agent.driver_location import Ways
from aliquot.kubernetes.virtual_machines.agent.host_gpus import Machine
from aliquot.kubernetes.virtual_machines.agent.informers import Corner
from aliquot.kubernetes.virtual_machines.agent.loop import Loop
from aliquot.kubernetes.virtual_machines.agent.metrics import Tally
from aliquot.kubernetes.virtual_machines.agent.node_report import Standing, Teller
from aliquot.kubernetes.virtual_machines.agent.object_writer import Writer
from aliquot.kubernetes.virtual_machines.agent.options import Options
from aliquot.kubernetes.virtual_machines.agent.pcidevices_conflict import incumbent
from aliquot.kubernetes.virtual_machines.agent.reconcile import Round, Work
from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdevs, offer
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import PCIDEVICES_RUNS, WITHOUT_PCIDEVICES
from aliquot.node.claims import watch
from aliquot.node.connect import Connection, connect, simulated_host

if TYPE_CHECKING:
    from aliquot.core.engine.programs import Programs
    from aliquot.hardware.kernel_files import Files

CLOSE_S = 5.0


def run(options: Options) -> int:
    """Run the agent until SIGTERM, SIGINT or SIGHUP. Raises AliquotError for what is wrong from the start."""
    be_frugal()
    logs.start(log, debug=options.debug)
    return asyncio.run(DevicesAgent(options).run())


class DevicesAgent:
    """All parts of one devices agent."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.tally = Tally(options.node_name)
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace, on_request=self.tally.requested)
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.corner = Corner(self.api, options.node_name, self._wake, self._ended)
        self.machine = Machine(self._bus, self._connect, self._wake)
        self.machine.steps = self.tally.changes.step
        self.teller = Teller(self.corner)
        self.writer = Writer(self.corner, self.teller.changed, self.tally.wrote)
        self.ways = Ways(self.api, self.corner, options)
        self.offering = Offering(os.path.join(options.kubelet_dir, "device-plugins")) if options.kubelet_dir else None
        self.allocations = Allocations(
            self.api,
            options.node_name,
            self._wake,
            uses=given.pods_devices(options.kubelet_dir),
            environment=launchers.environment(self.api),
            ended=self._ended,
        )
        uses = given.uses(options.kubelet_dir)
        self.showing = Showing(self.api, options.node_name, document.VGPUS, namespace=self.api.namespace, uses=uses)
        self.using = Using(self.machine, uses, self._used, every_s(dict(os.environ)), self.machine.held)
        self.loop: Loop | None = None
        self.used = Used()
        self.role = RoleLock("VM agent", directories(options.node)[0], self._pod)
        self.stopping = asyncio.Event()
        self.code = 0

    @property
    def _pod(self) -> str:
        """The agent's own pod as namespace/name, "" outside a pod."""
        return f"{self.api.namespace}/{self.options.pod}" if self.options.pod else ""

    # -- the machine

    def _bus(self) -> Files:
        if self.options.node is None:
            from aliquot.hardware.kernel_files import RealFiles

            return RealFiles()
        from aliquot.foundation.paths import state_dir
        from aliquot.sim.client import Node
        from aliquot.sim.files import SimFiles

        return SimFiles(Node(state_dir(), self.options.node))

    def _connect(self, programs: Programs | None) -> Connection:
        if self.options.node is None and programs is None:
            found = driver.find(self.options.host_root, self.options.driver_root)
            if found.here is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = found.here
        connection = connect(self.options.node, programs, everything=True, say=log.warning)
        watch(connection, self.options.holders, log.warning)
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
        probes = Probes(pages, {"/metrics": self.tally.page.answer})
        beside: list[asyncio.Task[None]] = []
        try:
            if self.options.port >= 0:
                log.info("health and metrics on port %d", await self._listen(probes))
            ending.enter_context(signals.asked_to_end(self._stop, asyncio.get_running_loop()))
            if not await self.role.take(self.stopping):
                return self.code
            self.loop = self._assemble()
            await self.corner.start()
            self.allocations.start()
            beside += [asyncio.create_task(each) for each in self._beside()]
            for task in beside:
                task.add_done_callback(self._ended)
            await run_to_end(self.loop, self.machine)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await self.using.close()
            await probes.close()
            await self.corner.close()
            await self.allocations.close()
            if self.offering is not None:
                await self.offering.close()
            with suppress(TimeoutError):  # a driver call that hangs ends with the process
                await asyncio.wait_for(self.machine.close(), CLOSE_S)
            await self.api.aclose()
            self.role.close()
            leave_if_hung(self.code, log.warning)
            ending.close()
        return self.code

    def _stop(self) -> None:
        self.stopping.set()
        if self.loop is not None:
            self.loop.stop()

    def _beside(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What runs beside the loop, for ever."""
        mind = self.showing.mind(lambda: self.machine.hang, lambda: self.corner.node)
        files = StateFileReport(directories(self.options.node), self.tally, self.teller.warn)
        assert self.loop is not None
        hangs = HangReporter(lambda: self.machine.hang, self.loop.report_hang)
        return self.showing.run(), mind, hangs.run(), self.using.run(), files.run()

    def _assemble(self) -> Loop:
        work = Work(
            self.corner,
            self.machine,
            self.writer,
            self.tally,
            way=self.ways.find,
            uses=given.uses(self.options.kubelet_dir),
            hands=self.offering or _NoHands(),
            boot=self._boot,
        )
        return Loop(
            self.corner,
            work,
            self.teller,
            self.tally,
            stand=self._stand,
            after=self._after,
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

    def _stand(self) -> Standing | None:
        """Why the agent keeps its hands off, None where it need not."""
        other = incumbent(self.corner.pods.items)
        if other is not None:
            where = f"{other.metadata.namespace}/{other.name}"
            text = (
                f"Harvester's pcidevices reconciles these kinds on this node (pod {where}): nothing is done meanwhile; "
                "its USB and network devices stop with it where it leaves"
            )
            step = f"kubectl label node {self.options.node_name} {WITHOUT_PCIDEVICES}=true, once its DaemonSet "
            step += "leaves out such nodes (docs/coming-from/pcidevices.md, step 3)"
            return Standing(tell.IDLE, PCIDEVICES_RUNS, f"{text} | next: {step}")
        absent = self.corner.absent
        if absent:
            text = f"the cluster does not have {', '.join(absent)} of devices.harvesterhci.io"
            return Standing(tell.IDLE, "NoCustomResources", f"{text} | next: kubectl apply -f deploy/crds")
        return None

    async def _after(self, done: Round | None) -> None:
        """What virtual machines can be given, and what is said of those that have it, follows what is. While somebody
        else is at work, the sockets and the annotations are his.
        """
        self._show(done)
        if done is None:
            if self.offering is not None:
                await self.offering.close()
            return
        if self.offering is not None:
            groups = await self.machine.groups(mdevs(done.view.inventory))
            await self.offering.publish(offer(done.view, done.objects, groups, self.machine.unhealthy))
        await self.allocations.keep(done.view, done.objects, self.corner.pods.items)

    def _show(self, done: Round | None) -> None:
        node = self.corner.node
        if node is None:
            return
        seen = of_round(done, node.name, self._pod, self.used, self.machine.pasts)
        if seen is not None:
            self.showing.see(seen, node.metadata.uid)
        elif self.loop is not None and self.loop.standing is not None:
            self.showing.unread(self.loop.standing.sentence, node.metadata.uid)

    def _used(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        self.tally.usage = usage
        self.used = Used(inventory, usage, time.time())

    # -- pages

    def _healthz(self) -> tuple[int, str, bytes]:
        return alive(self.loop.beat if self.loop is not None else None, busy=self.machine.stuck_s > 0)

    def _readyz(self) -> tuple[int, str, bytes]:
        """Not ready: a driver call hangs, another agent of this role works, something was not read yet, the API server
        is away, or what was to be written was not. An agent that leaves the node to another is ready, and says why.
        """
        undone = (self.offering.problem if self.offering is not None else "") or self.allocations.trouble
        trouble = (self.loop.trouble or undone) if self.loop is not None else "it is starting"
        hang = self.machine.hang
        problem = (
            (hang.brief if hang is not None else "")
            or self.role.waiting
            or self.corner.away
            or (f"{self.corner.unread} were not read yet" if self.corner.unread else trouble)
        )
        if problem:
            return 503, "text/plain", f"{problem}\n".encode()
        standing = self.loop.standing if self.loop is not None else None
        text = f"{standing.state}: {standing.sentence}" if standing is not None and standing.bad else "ok"
        if self.showing.problem:
            text += f", but the node's document was not written: {self.showing.problem}"
        return 200, "text/plain", f"{text}\n".encode()


class _NoHands:
    """Where there is no kubelet, nothing is given away."""

    def hold(self, ids: frozenset[str]) -> frozenset[str]:
        return frozenset()
