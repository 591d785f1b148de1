"""Putting the agent together, and taking it apart in order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from aliquot.cdi import api as cdi
from aliquot.core.model import xids
from aliquot.core.model.claims import HolderSource
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation import driver_calls, signals
from aliquot.foundation import logfmt as logs
from aliquot.foundation.http_probes import Probes
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.paths import directories
from aliquot.foundation.process_end import leave_if_hung
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.label_agent.agent.document_builder import build_document
from aliquot.kubernetes.label_agent.agent.executor import StepExecutor
from aliquot.kubernetes.label_agent.agent.host_services import HostServices
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.loop import LabelAgentLoop
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer, Uses
from aliquot.kubernetes.label_agent.agent.publisher import Publisher
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.label_agent.agent.steps import Step, WaitForEvent
from aliquot.kubernetes.node_agent import driver_root as driver
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.document_publisher import DocumentPublisher
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.last_usage import LastUsage
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.malloc_tuning import limit_heap
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.node_agent.process_end import run_to_end
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.kubernetes.node_agent.usage_sampler import UsageSampler, sampling_interval_s
from aliquot.node.claims import attach_claims
from aliquot.node.connect import Connection, connect, simulated_host

CLOSE_S = 5.0


class LabelAgentOptions(msgspec.Struct, frozen=True):
    """What the command line says. ``node`` is the simulated node, None for this machine; ``kubelet_dir`` "" where there
    is no kubelet; ``holders`` know what must not be destroyed, beside containers; ``cdi_dir`` "" where CDI documents
    are somebody else's; ``port`` 0 takes a free one, -1 none.
    """

    setup: AgentSetup
    holders: tuple[HolderSource, ...]
    node: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None
    kubelet_dir: str = "/var/lib/kubelet"
    cdi_dir: str = cdi.DIRECTORY
    cdi_options: cdi.CdiOptions = cdi.CdiOptions()
    host_root: str = ""
    driver_root: str = ""
    port: int = 8080
    pod: str = ""
    debug: bool = False


def run(options: LabelAgentOptions) -> int:
    """Run the agent until SIGTERM, SIGINT or SIGHUP. Raises AliquotError for what is wrong from the start."""
    limit_heap()
    logs.start(log, debug=options.debug)
    return asyncio.run(LabelAgent(options).run())


class LabelAgent:
    """All parts of one agent."""

    def __init__(self, options: LabelAgentOptions) -> None:
        self.options = options
        setup = options.setup
        self.metrics = LabelAgentMetrics(setup.node)
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace, on_request=self.metrics.record_request)
        wanted, remarks = xids.policy(setup.environment)
        self.hardware = GpuWorker(self._connect, wanted, self.metrics.changes.record_step, driver_calls.hangs_s())
        self.informer = NodeInformer(self.api, setup.node, self.api.namespace, self._wake, self._ended)
        self.loop: LabelAgentLoop | None = None
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.offering = DeviceOffering(
            os.path.join(options.kubelet_dir, "device-plugins") if options.kubelet_dir else ""
        )
        self.remarks = remarks
        self.driver = driver.DriverLocation()
        self.document_publisher: DocumentPublisher | None = None
        self.usage_sampler = UsageSampler(
            self.hardware, _pod_uses(options), self._record_usage, sampling_interval_s(setup.environment)
        )
        self.last_usage = LastUsage()
        self.role = RoleLock("label agent", directories(options.node)[0], self._pod)
        self.stopping = asyncio.Event()
        self.boot_id = ""
        self.code = 0

    def _connect(self) -> Connection:
        if self.options.node is None:
            self.driver = driver.find_driver(self.options.host_root, self.options.driver_root)
            if self.driver.local_root is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = self.driver.local_root
        connection = connect(self.options.node, report=log.warning)
        attach_claims(connection, self.options.holders, log.warning)
        connection.by = "agent"
        return connection

    @property
    def _pod(self) -> str:
        """The agent's own pod as namespace/name, "" outside a pod."""
        return f"{self.api.namespace}/{self.options.pod}" if self.options.pod else ""

    def _wake(self) -> None:
        if self.loop is not None:
            self.loop.wake()

    async def run(self) -> int:
        """Until a signal."""
        ending = ExitStack()
        background: list[asyncio.Task[Any]] = []
        pages = {"/healthz": self._healthz, "/readyz": self._readyz}
        probes = Probes(pages, {"/metrics": self.metrics.page.answer})
        try:
            if self.options.port >= 0:
                port = await self._listen(probes)
                log.info("health and metrics on port %d", port)
            for sentence in self.remarks:
                log.warning("%s", sentence)
            ending.enter_context(signals.stop_on_signal(self._stop, asyncio.get_running_loop()))
            if not await self.role.take(self.stopping):
                return self.code
            self.loop = await self._assemble()
            if self.stopping.is_set():
                self.loop.stop()
            await self.informer.start()
            background += [asyncio.create_task(each) for each in self._background_tasks(self.loop)]
            for task in background:
                task.add_done_callback(self._ended)
            await run_to_end(self.loop, self.hardware)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await probes.close()
            await self.informer.close()
            await self.usage_sampler.close()
            await self.offering.close()
            with suppress(TimeoutError):  # a driver call that hangs ends with the process
                await asyncio.wait_for(self.hardware.close(), CLOSE_S)
            await self.api.aclose()
            self.role.close()
            leave_if_hung(self.code, log.warning)
            ending.close()
        return self.code

    def _stop(self) -> None:
        self.stopping.set()
        if self.loop is not None:
            self.loop.stop()

    async def _listen(self, probes: Probes) -> int:
        try:
            return await probes.start("", self.options.port)
        except OSError as error:
            raise BlockedError(
                f"cannot listen on port {self.options.port}: {error.strerror or error}",
                next_step="aliquot agent --port 0",
            ) from error

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A part that was to run for ever did not: better to start anew as a whole than to go on deaf."""
        error = None if task.cancelled() else task.exception()
        if error is None or self.loop is None:
            return
        log.error("internal fault: report this, with the output of: aliquot version", exc_info=error)
        self.code = 1
        self.loop.stop()

    async def _assemble(self) -> LabelAgentLoop:
        options = self.options
        state_file = AgentStateFile(self._directory())
        uses = _pod_uses(options)
        owner = self.role.owner(await self._boot())
        change_lock = os.path.join(directories(options.node)[0], "lock")
        observer = Observer(self.informer, self.hardware, state_file, options.setup, uses, self._boot)
        observer.owner, observer.change_lock = owner, change_lock
        observer.last_settings = LastSettings(self._directory())
        observer.planning = self.metrics.changes.time_plan
        publisher = Publisher(
            self.informer,
            options.setup,
            lambda: observer.facts,
            offering=self.offering,
            cdi=self._cdi() if options.cdi_dir else None,
            uses=uses,
            owner=await self._owner(),
        )
        host = HostServices(options.host_root, self.simulated)
        executor = StepExecutor(
            self.informer, self.hardware, state_file, publisher, host, self.metrics, owner, change_lock
        )
        self.document_publisher = DocumentPublisher(
            self.api, options.setup.node, document.GPUS, namespace=self.api.namespace, uses=uses
        )
        self.document_publisher.on_held = self.metrics.record_holders
        return LabelAgentLoop(
            self.informer, observer, executor, self.metrics, lambda *found: self._update_document(observer, *found)
        )

    def _update_document(self, observer: Observer, observation: Observation, step: Step) -> None:
        sources = (
            observer.sources(observation.settings, observation.inventory) if observation.inventory is not None else ()
        )
        node_document = build_document(observation, sources, self._pod, self.last_usage, self.hardware.past_runs)
        assert self.document_publisher is not None
        if node_document is not None:
            self.document_publisher.update(
                node_document, observation.uid, busy=bool(node_document.drift) and not isinstance(step, WaitForEvent)
            )
        elif observation.failure is not None:
            self.document_publisher.report_unreadable(observation.failure.message, observation.uid)

    def _background_tasks(self, loop: LabelAgentLoop) -> tuple[Coroutine[Any, Any, None], ...]:
        """What runs beside the loop, for ever."""
        assert self.document_publisher is not None
        refresh = self.document_publisher.watch_hangs(lambda: self.hardware.hang, lambda: self.informer.node)
        files = StateFileReport(directories(self.options.node), self.metrics, self.informer.warn)
        return (
            self.hardware.watch(loop.wake),
            self.document_publisher.run(),
            refresh,
            self.usage_sampler.run(),
            files.run(),
        )

    def _record_usage(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        self.metrics.usage = usage
        self.last_usage = LastUsage(inventory, usage, time.time())

    def _directory(self) -> str:
        """Where the agent's record lies. A machine without a driver has one too."""
        return directories(self.options.node)[1]

    async def _boot(self) -> str:
        from aliquot.hardware.state.journal import boot_id

        if self.simulated is None:
            return boot_id()
        if self.hardware.hang is None:  # the simulator's server answers this as well
            self.boot_id = await asyncio.to_thread(self.simulated.boot)
        return self.boot_id

    def _cdi(self) -> Callable[[Inventory], tuple[str, ...]]:
        options = self.options

        def write(inventory: Inventory) -> tuple[str, ...]:
            local_root, host = self.driver.local_root or "", self.driver.host
            found = msgspec.structs.replace(options.cdi_options, driver_root=host, local_driver_root=local_root)
            managing = msgspec.structs.replace(found, mode="management")
            return cdi.refresh(inventory, found, options.cdi_dir), cdi.refresh(inventory, managing, options.cdi_dir)

        return write

    async def _owner(self) -> dict[str, Any] | None:
        """The agent's own pod, which owns the generated configs; None outside a pod."""
        from aliquot.kubernetes.client.objects import Pod

        if not self.options.pod:
            return None
        try:
            pod = await self.api.get(Pod, self.options.pod)
        except AliquotError as error:
            log.warning("generated configs will outlive this pod: %s", error.brief)
            return None
        return {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}

    # -- pages

    def _healthz(self) -> tuple[int, str, bytes]:
        return alive(self.loop.beat if self.loop is not None else None, busy=self.hardware.stuck_s > 0)

    def _readyz(self) -> tuple[int, str, bytes]:
        """Not ready: a driver call hangs, another agent works, the node was not read yet, the API server is away ..."""
        hang = self.hardware.hang
        unread = f"node {self.informer.name} was not read yet" if self.informer.node is None else ""
        pending = (self.loop.error or self.loop.executor.publisher.problem) if self.loop is not None else ""
        problem = (
            (hang.brief if hang is not None else "")
            or self.role.waiting
            or self.informer.unavailable
            or unread
            or pending
        )
        if problem:
            return 503, "text/plain", f"{problem}\n".encode()
        # An agent that cannot write the document is ready, and says so.
        write_problem = self.document_publisher.problem if self.document_publisher is not None else ""
        text = f"ok, but the node's document was not written: {write_problem}" if write_problem else "ok"
        return 200, "text/plain", f"{text}\n".encode()


def _pod_uses(options: LabelAgentOptions) -> Uses | None:
    if not options.kubelet_dir:
        return None
    socket = os.path.join(options.kubelet_dir, "pod-resources", "kubelet.sock")

    async def query() -> Sequence[PodDeviceUse]:
        from aliquot.kubernetes.device_plugin import pod_resources

        found = await pod_resources.list_uses(socket)
        ours = [u for u in found if u.resource.startswith("nvidia.com/") or u.claim is not None]
        return [PodDeviceUse(u.namespace, u.pod, u.container, u.devices, u.claim) for u in ours]

    return query
