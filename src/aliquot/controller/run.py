"""The cluster's one controller: passes ClusterPolicy on to the agents, and tells the agent's DaemonSet its nodes.

Level-triggered: whatever happened, what is written is the difference between what should be and what is, so that an
idle cluster sees no writes. Several may run; the one that holds the Lease writes.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.controller import nodes
from aliquot.controller.devices.part import DevicesPart
from aliquot.controller.devices.part import Pace as DevicesPace
from aliquot.controller.devices.removal import PATIENCE_S as MISSING_S
from aliquot.controller.effective import Effective, merged, said
from aliquot.controller.log import log, start
from aliquot.controller.shelf import KIND_TIMING, Shelf
from aliquot.controller.tally import CONTENT_TYPE, Tally
from aliquot.controller.waiting import PATIENCE_S, Waiting
from aliquot.controller.webhook.options import Page as HttpsPage
from aliquot.controller.webhook.options import WebhookOptions
from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.api.client import Api
from aliquot.integrations.kubernetes.api.errors import ApiError, ConflictError, NotFoundError
from aliquot.integrations.kubernetes.api.lease import Leader, LeaseTiming
from aliquot.integrations.kubernetes.api.objects import ClusterPolicy, ConfigMap, Node
from aliquot.integrations.kubernetes.api.watch import Timing
from aliquot.integrations.kubernetes.harvester.kinds import SRIOVGPUDevice
from aliquot.integrations.kubernetes.operands import NodePatch

if TYPE_CHECKING:
    from aliquot.controller.webhook.run import Webhook

LEASE = "aliquot-controller"
GATHER_S = 0.1
"""Several changes that come together are answered once."""
RETRY_S = (1.0, 60.0)
"""The first and the longest pause before what failed is tried again; doubling."""


class Pace(msgspec.Struct, frozen=True):
    """How fast leadership changes hands, how watches are kept, how long pods may wait before anything is said, and how
    long a node may be missing before its devices' objects go.
    """

    lease: LeaseTiming = LeaseTiming()
    watch: Timing = KIND_TIMING
    patience_s: float = PATIENCE_S
    missing_s: float = MISSING_S


PACE = Pace()
Page = Callable[[], tuple[int, str, bytes]]
Serve = Callable[[Mapping[str, Page], int], Awaitable[Callable[[], Awaitable[None]]]]
"""Serves pages by path on a port until what it returns is called."""


class Options(msgspec.Struct, frozen=True):
    """What the command line says. ``port`` -1 serves nothing. ``kubevirt_namespace`` is where KubeVirt's settings are;
    empty: this cluster's virtual machines are no concern of ours.
    """

    kubeconfig: str | None = None
    namespace: str | None = None
    identity: str | None = None
    port: int = 8080
    debug: bool = False
    kubevirt_namespace: str = ""
    webhook: WebhookOptions = WebhookOptions()


def run(options: Options, serve: Serve | None = None) -> int:
    """Runs until SIGTERM or SIGINT. Raises AliquotError for what is wrong from the start."""
    start(debug=options.debug)
    return asyncio.run(_main(options, serve))


async def _main(options: Options, serve: Serve | None) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Api.connect(options.kubeconfig, namespace=options.namespace) as api:
        controller = Controller(
            api,
            identity=options.identity,
            kubevirt_namespace=options.kubevirt_namespace,
            webhook=options.webhook,
        )
        close = await serve(controller.pages, options.port) if serve is not None and options.port >= 0 else None
        work = asyncio.create_task(controller.run())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (work, waiting):
            task.cancel()
        results = await asyncio.gather(work, waiting, return_exceptions=True)
        if close is not None:
            await close()
    if isinstance(results[0], Exception):
        raise results[0]
    return 0


class Controller:
    """``pages`` are what it answers over HTTP, by path; ``tally.written`` counts what it wrote. ``vms`` is its part for
    virtual machines, which works beside the rest; None where they are no concern.
    """

    def __init__(
        self,
        api: Api,
        *,
        identity: str | None = None,
        pace: Pace = PACE,
        kubevirt_namespace: str = "",
        webhook: WebhookOptions | None = None,
    ) -> None:
        self.api = api
        self.tally = Tally()
        self.leader = Leader(api, LEASE, identity=identity, timing=pace.lease, on_change=self._led)
        self.nodes: Shelf[Node] = Shelf(Node, self._nodes_changed, pace.watch)
        self.policies: Shelf[ClusterPolicy] = Shelf(ClusterPolicy, self._all_changed, pace.watch)
        self.devices: Shelf[SRIOVGPUDevice] = Shelf(SRIOVGPUDevice, self._all_changed, pace.watch)
        self.settings: Shelf[ConfigMap] = Shelf(ConfigMap, self._all_changed, pace.watch)
        self.effective: Shelf[ConfigMap] = Shelf(ConfigMap, self._all_changed, pace.watch)
        self.waiting = Waiting(
            api, lambda: self.nodes.items.values(), self.tally, patience_s=pace.patience_s, timing=pace.watch
        )
        self.vms: DevicesPart | None = None
        if kubevirt_namespace:
            told = DevicesPace(pace.watch, pace.missing_s)
            shelves = (self.nodes, self.devices)
            self.vms = DevicesPart(
                api,
                lambda: self.leader.is_leader,
                shelves,
                self.tally,
                namespace=kubevirt_namespace,
                pace=told,
                claimed=self._reserve,
            )
        self.pages: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        self.https_pages: dict[str, HttpsPage] = {} if self.vms is None else self.vms.pages
        self.webhook = self._webhook(webhook or WebhookOptions())
        self._effective = Effective(api, self.effective, self.tally)
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        self._seen: dict[str, object] = {}
        self._said: tuple[str, ...] = ()

    async def run(self) -> None:
        """For ever. Raises only what no retry cures."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.follow(self.api))
            group.create_task(self.policies.follow(self.api))
            group.create_task(self.devices.follow(self.api))
            group.create_task(self.settings.follow(self.api, name=names.SETTINGS_MAP))
            group.create_task(self.effective.follow(self.api, name=names.EFFECTIVE_MAP))
            group.create_task(self.waiting.run())
            if self.vms is not None:
                group.create_task(self.vms.run())
            if self.webhook is not None:
                group.create_task(self.webhook.run())
            async with self.leader:
                await self._work()

    def _webhook(self, options: WebhookOptions) -> Webhook | None:
        """Its libraries are needed only where it serves."""
        if options.port < 0 or self.vms is None:
            return None
        from aliquot.controller.webhook.run import Webhook

        return Webhook(self.api, self.vms.world, options, lambda: self.leader.is_leader, self.https_pages)

    # -- events

    def _led(self, leading: bool) -> None:
        log.info("this is %s the controller", "now" if leading else "no longer")
        self.tally.led(leading)
        if not leading:
            self.waiting.turn(False)
        if self.webhook is not None:
            self.webhook.led()
        self._all_changed(set())

    def _all_changed(self, _: set[str]) -> None:
        self._reserve()
        if self.vms is not None:
            self.vms.wake()

    def _reserve(self) -> None:
        """All nodes are to be looked at again."""
        self._dirty |= set(self.nodes.items)
        self._wake.set()

    def _nodes_changed(self, changed: set[str]) -> None:
        """A heartbeat is no reason to look at a node again."""
        self.waiting.nodes_changed()
        if self.vms is not None:
            self.vms.wake()
        for name in changed:
            node = self.nodes.items.get(name)
            seen = None if node is None else (node.metadata.labels, node.metadata.annotations)
            if seen != self._seen.get(name, ()):
                self._seen[name] = seen
                self._dirty.add(name)
                self._wake.set()
            if node is None:
                self._seen.pop(name, None)

    @property
    def known(self) -> bool:
        """Everything was read once."""
        shelves: tuple[Shelf[Any], ...] = (self.nodes, self.policies, self.devices, self.settings, self.effective)
        claims = (self.vms.world.claims,) if self.vms is not None else ()
        return all(shelf.known for shelf in (*shelves, *claims))

    # -- work

    async def _work(self) -> None:
        pause = RETRY_S[0]
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            self._wake.clear()
            if not self.leader.is_leader or not self.known:
                continue
            if await self._reconcile():
                pause = RETRY_S[0]
            else:
                asyncio.get_running_loop().call_later(pause, self._wake.set)
                pause = min(pause * 2, RETRY_S[1])

    async def _reconcile(self) -> bool:
        """False if something has to be tried again."""
        told = said(self.policies.items.values())
        value, faults = merged(told, self.settings.items.get(names.SETTINGS_MAP))
        self._say((*told.notes, *faults))
        self.waiting.turn(value.hints, value.config_map)
        done = await self._effective.publish(told, faults)
        wanted = nodes.Wanted(not told.manager, "" if faults else value.default_config)
        claims = self.vms.world.claims.items.values() if self.vms is not None else ()
        reserved = nodes.reserved(self.devices.items.values(), claims)
        dirty, self._dirty = self._dirty, set()
        self.tally.nodes(len(self.nodes.items))
        for name in sorted(dirty):
            node = self.nodes.items.get(name)
            if node is None:
                continue
            patch = nodes.patch(node, wanted, reserved.get(name, ()))
            if patch and not await self._change(node, patch):
                self._dirty.add(name)
                done = False
        return done

    def _say(self, sentences: tuple[str, ...]) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                log.warning("%s", sentence)
        self._said = sentences

    async def _change(self, node: Node, patch: NodePatch) -> bool:
        """Writes a node, unless somebody else changed it since: then its event brings it here again."""
        if not self.leader.is_leader:
            return True
        try:
            written = await self.api.patch(Node, node.name, patch.body(node.metadata.resource_version))
        except NotFoundError:
            return True
        except ConflictError:
            return False  # perhaps a heartbeat alone, whose event brings nothing here
        except ApiError as error:
            return self._failed("node", error)
        log.info("node %s: %s", node.name, _sentence(patch))
        self.nodes.keep(node, written)
        self.tally.wrote("node")
        return True

    def _failed(self, what: str, error: ApiError) -> bool:
        log.warning("%s", "; ".join((error.brief, *error.details)))
        self.tally.failed(what)
        return False

    # -- pages

    def _healthz(self) -> tuple[int, str, bytes]:
        return 200, "text/plain", b"ok\n"

    def _readyz(self) -> tuple[int, str, bytes]:
        """Not ready: not everything was read yet, or the API server is away. One that does not lead is ready."""
        shelves = (self.nodes, self.policies, self.devices, self.settings, self.effective)
        away = next((shelf.away for shelf in shelves if shelf.away), "")
        if away or not self.known:
            return 503, "text/plain", f"{away or 'not everything was read yet'}\n".encode()
        if self.webhook is not None and self.webhook.missing:
            return 503, "text/plain", f"{self.webhook.missing}\n".encode()
        return 200, "text/plain", b"ok\n"

    def _metrics(self) -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE, self.tally.page()


def _sentence(patch: NodePatch) -> str:
    changed = patch.labels | patch.annotations
    return ", ".join(f"{name} removed" if value is None else f"{name}={value}" for name, value in changed.items())
