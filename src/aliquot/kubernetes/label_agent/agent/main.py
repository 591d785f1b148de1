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
from aliquot.kubernetes.label_agent.agent.device_offering import Offering
from aliquot.kubernetes.label_agent.agent.document_builder import of_look
from aliquot.kubernetes.label_agent.agent.executor import Actor
from aliquot.kubernetes.label_agent.agent.host_services import HostMachine
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.loop import Loop
from aliquot.kubernetes.label_agent.agent.metrics import Tally
from aliquot.kubernetes.label_agent.agent.node_informer import Corner
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer, Uses
from aliquot.kubernetes.label_agent.agent.publisher import Publisher
from aliquot.kubernetes.label_agent.agent.settings import Place
from aliquot.kubernetes.label_agent.agent.state_file import Record
from aliquot.kubernetes.label_agent.agent.steps import Rest, Step
from aliquot.kubernetes.node_agent import driver_root as driver
from aliquot.kubernetes.node_agent.document_publisher import Showing
from aliquot.kubernetes.node_agent.gc_tuning import be_frugal
from aliquot.kubernetes.node_agent.gpu_worker import Hardware
from aliquot.kubernetes.node_agent.last_usage import Used
from aliquot.kubernetes.node_agent.liveness import alive
from aliquot.kubernetes.node_agent.pod_holders import Use
from aliquot.kubernetes.node_agent.process_end import run_to_end
from aliquot.kubernetes.node_agent.role_lock import RoleLock
from aliquot.kubernetes.node_agent.state_file_report import StateFileReport
from aliquot.kubernetes.node_agent.usage_sampler import Using, every_s
from aliquot.node.claims import watch
from aliquot.node.connect import Connection, connect, simulated_host

CLOSE_S = 5.0


class Options(msgspec.Struct, frozen=True):
    """What the command line says. ``node`` is the simulated node, None for this machine; ``kubelet_dir`` "" where there
    is no kubelet; ``holders`` know what must not be destroyed, beside containers; ``cdi_dir`` "" where CDI documents
    are somebody else's; ``port`` 0 takes a free one, -1 none.
    """

    place: Place
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


def run(options: Options) -> int:
    """Run the agent until SIGTERM, SIGINT or SIGHUP. Raises AliquotError for what is wrong from the start."""
    be_frugal()
    logs.start(log, debug=options.debug)
    return asyncio.run(Agent(options).run())


class Agent:
    """All parts of one agent."""

    def __init__(self, options: Options) -> None:
        self.options = options
        place = options.place
        self.tally = Tally(place.node)
        self.api = Api.connect(options.kubeconfig, namespace=options.namespace, on_request=self.tally.requested)
        wanted, remarks = xids.policy(place.environment)
        self.hardware = Hardware(self._connect, wanted, self.tally.changes.step, driver_calls.hangs_s())
        self.corner = Corner(self.api, place.node, self.api.namespace, self._wake, self._ended)
        self.loop: Loop | None = None
        self.simulated = simulated_host(options.node) if options.node is not None else None
        self.offering = _offering(options)
        self.remarks = remarks
        self.driver = driver.Driver()
        self.showing: Showing | None = None
        self.using = Using(self.hardware, _uses(options), self._used, every_s(place.environment))
        self.used = Used()
        self.role = RoleLock("label agent", directories(options.node)[0], self._pod)
        self.stopping = asyncio.Event()
        self.booted = ""
        self.code = 0

    def _connect(self) -> Connection:
        if self.options.node is None:
            self.driver = driver.find(self.options.host_root, self.options.driver_root)
            if self.driver.here is not None:
                os.environ["ALIQUOT_DRIVER_ROOT"] = self.driver.here
        connection = connect(self.options.node, say=log.warning)
        watch(connection, self.options.holders, log.warning)
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
        probes = Probes(pages, {"/metrics": self.tally.page.answer})
        try:
            if self.options.port >= 0:
                port = await self._listen(probes)
                log.info("health and metrics on port %d", port)
            for sentence in self.remarks:
                log.warning("%s", sentence)
            ending.enter_context(signals.asked_to_end(self._stop, asyncio.get_running_loop()))
            if not await self.role.take(self.stopping):
                return self.code
            self.loop = await self._assemble()
            if self.stopping.is_set():
                self.loop.stop()
            await self.corner.start()
            background += [asyncio.create_task(each) for each in self._beside(self.loop)]
            for task in background:
                task.add_done_callback(self._ended)
            await run_to_end(self.loop, self.hardware)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await probes.close()
            await self.corner.close()
            await self.using.close()
            if self.offering is not None:
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

    async def _assemble(self) -> Loop:
        o = self.options
        record = Record(self._directory())
        uses = _uses(o)
        owner = self.role.owner(await self._boot())
        change_lock = os.path.join(directories(o.node)[0], "lock")
        observer = Observer(self.corner, self.hardware, record, o.place, uses, self._boot)
        observer.owner, observer.change_lock = owner, change_lock
        observer.last_settings = LastSettings(self._directory())
        observer.planning = self.tally.changes.planning
        publisher = Publisher(
            self.corner,
            o.place,
            lambda: observer.facts,
            offering=self.offering,
            cdi=self._cdi() if o.cdi_dir else None,
            uses=uses,
            owner=await self._owner(),
        )
        machine = HostMachine(o.host_root, self.simulated)
        actor = Actor(self.corner, self.hardware, record, publisher, machine, self.tally, owner, change_lock)
        self.showing = Showing(self.api, o.place.node, document.GPUS, namespace=self.api.namespace, uses=uses)
        self.showing.on_held = self.tally.held
        return Loop(self.corner, observer, actor, self.tally, lambda *found: self._see(observer, *found))

    def _see(self, observer: Observer, o: Observation, step: Step) -> None:
        sources = observer.sources(o.settings, o.inventory) if o.inventory is not None else ()
        seen = of_look(o, sources, self._pod, self.used, self.hardware.pasts)
        assert self.showing is not None
        if seen is not None:
            self.showing.see(seen, o.uid, busy=bool(seen.drift) and not isinstance(step, Rest))
        elif o.trouble is not None:
            self.showing.unread(o.trouble.message, o.uid)

    def _beside(self, loop: Loop) -> tuple[Coroutine[Any, Any, None], ...]:
        """What runs beside the loop, for ever."""
        assert self.showing is not None
        mind = self.showing.mind(lambda: self.hardware.hang, lambda: self.corner.node)
        files = StateFileReport(directories(self.options.node), self.tally, self.corner.warn)
        return self.hardware.watch(loop.wake), self.showing.run(), mind, self.using.run(), files.run()

    def _used(self, inventory: Inventory, usage: tuple[Usage, ...]) -> None:
        self.tally.usage = usage
        self.used = Used(inventory, usage, time.time())

    def _directory(self) -> str:
        """Where the agent's record lies. A machine without a driver has one too."""
        return directories(self.options.node)[1]

    async def _boot(self) -> str:
        from aliquot.hardware.state.journal import boot_id

        if self.simulated is None:
            return boot_id()
        if self.hardware.hang is None:  # the simulator's server answers this as well
            self.booted = await asyncio.to_thread(self.simulated.boot)
        return self.booted

    def _cdi(self) -> Callable[[Inventory], tuple[str, ...]]:
        o = self.options

        def write(inventory: Inventory) -> tuple[str, ...]:
            here, host = self.driver.here or "", self.driver.host
            found = msgspec.structs.replace(o.cdi_options, driver_root=host, driver_root_here=here)
            managing = msgspec.structs.replace(found, mode="management")
            return cdi.refresh(inventory, found, o.cdi_dir), cdi.refresh(inventory, managing, o.cdi_dir)

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
        unseen = f"node {self.corner.name} was not read yet" if self.corner.node is None else ""
        undone = (self.loop.trouble or self.loop.actor.publisher.problem) if self.loop is not None else ""
        problem = (hang.brief if hang is not None else "") or self.role.waiting or self.corner.away or unseen or undone
        if problem:
            return 503, "text/plain", f"{problem}\n".encode()
        # An agent that cannot write the document is ready, and says so.
        untold = self.showing.problem if self.showing is not None else ""
        text = f"ok, but the node's document was not written: {untold}" if untold else "ok"
        return 200, "text/plain", f"{text}\n".encode()


def _offering(o: Options) -> Offering | None:
    if not o.kubelet_dir:
        return None
    return Offering(os.path.join(o.kubelet_dir, "device-plugins"), cdi=bool(o.cdi_dir))


def _uses(o: Options) -> Uses | None:
    if not o.kubelet_dir:
        return None
    socket = os.path.join(o.kubelet_dir, "pod-resources", "kubelet.sock")

    async def ask() -> Sequence[Use]:
        from aliquot.kubernetes.device_plugin import pod_resources

        found = await pod_resources.uses(socket)
        ours = [u for u in found if u.resource.startswith("nvidia.com/") or u.claim is not None]
        return [Use(u.namespace, u.pod, u.container, u.devices, u.claim) for u in ours]

    return ask
