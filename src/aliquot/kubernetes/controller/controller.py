"""The cluster's one controller: passes ClusterPolicy on to the agents, and tells the agent's DaemonSet its nodes.

Level-triggered: whatever happened, what is written is the difference between what should be and what is, so that an
idle cluster sees no writes. Several may run; the one that holds the Lease writes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.foundation.http_probes import Negotiated, Page
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.kind_watch import KIND_TIMING
from aliquot.kubernetes.client.leader_election import Leader, LeaseTiming
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import Timing
from aliquot.kubernetes.client.work_loop import Rounds
from aliquot.kubernetes.controller.informers import World
from aliquot.kubernetes.controller.metrics import Standing
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.label_agent.controller import node_labels as nodes
from aliquot.kubernetes.label_agent.controller.effective_settings import Effective, Merged, said
from aliquot.kubernetes.label_agent.controller.pending_pods import PATIENCE_S, Waiting
from aliquot.kubernetes.virtual_machines.controller.controller import DevicesPart
from aliquot.kubernetes.virtual_machines.controller.controller import Pace as DevicesPace
from aliquot.kubernetes.virtual_machines.controller.node_cleanup import PATIENCE_S as MISSING_S
from aliquot.kubernetes.virtual_machines.webhook.options import Page as HttpsPage
from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions
from aliquot.metrics.controller_metrics import Tally

if TYPE_CHECKING:
    from aliquot.kubernetes.virtual_machines.webhook.main import Webhook

LEASE = "aliquot-controller"
GATHER_S = 0.1
"""Several changes that come together are answered once."""
RETRY = Backoff(first=1.0, longest=60.0)
"""The pause before what failed is tried again."""


class Pace(msgspec.Struct, frozen=True):
    """How fast leadership changes hands, how watches are kept, how long pods may wait before anything is said, and how
    long a node may be missing before its devices' objects go.
    """

    lease: LeaseTiming = LeaseTiming()
    watch: Timing = KIND_TIMING
    patience_s: float = PATIENCE_S
    missing_s: float = MISSING_S


PACE = Pace()


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
        self.world = World(self._nodes_changed, self._all_changed, pace.watch)
        self.waiting = Waiting(
            api, lambda: self.world.nodes.items.values(), self.tally, patience_s=pace.patience_s, timing=pace.watch
        )
        self.vms = self._for_machines(kubevirt_namespace, pace) if kubevirt_namespace else None
        self.pages: dict[str, Page] = {"/healthz": self._healthz, "/readyz": self._readyz}
        self.https_pages: dict[str, HttpsPage] = {} if self.vms is None else self.vms.pages
        self.webhook = self._webhook(webhook or WebhookOptions())
        self.figures: dict[str, Negotiated] = {"/metrics": self.tally.page.answer}
        self.tally.registry.register(
            Standing(lambda: self.waiting.waits, lambda: self.webhook.expires if self.webhook is not None else None)
        )
        self._effective = Effective(api, self.world.effective, self.tally)
        self._settings = Merged()
        self._rounds = Rounds(GATHER_S, RETRY)
        self._dirty: set[str] = set()
        self._seen: dict[str, object] = {}
        self._said: tuple[str, ...] = ()

    async def run(self) -> None:
        """For ever. Raises only what no retry cures."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.world.follow(self.api))
            group.create_task(self.waiting.run())
            if self.vms is not None:
                group.create_task(self.vms.run())
            if self.webhook is not None:
                group.create_task(self.webhook.run())
            async with self.leader:
                await self._rounds.run(self._work)

    def _for_machines(self, namespace: str, pace: Pace) -> DevicesPart:
        return DevicesPart(
            self.api,
            lambda: self.leader.is_leader,
            (self.world.nodes, self.world.devices),
            self.tally,
            namespace=namespace,
            pace=DevicesPace(pace.watch, pace.missing_s),
            claimed=self._reserve,
        )

    def _webhook(self, options: WebhookOptions) -> Webhook | None:
        """Its libraries are needed only where it serves."""
        if options.port < 0 or self.vms is None:
            return None
        from aliquot.kubernetes.virtual_machines.webhook.main import Webhook

        made = Webhook(self.api, self.vms.world, options, lambda: self.leader.is_leader, self.https_pages)
        made.reviewed = self.tally.reviewed
        return made

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
        self._dirty |= set(self.world.nodes.items)
        self._rounds.wake()

    def _nodes_changed(self, changed: set[str]) -> None:
        """A heartbeat is no reason to look at a node again."""
        self.waiting.nodes_changed()
        if self.vms is not None:
            self.vms.wake()
        for name in changed:
            node = self.world.nodes.items.get(name)
            seen = None if node is None else (node.metadata.labels, node.metadata.annotations)
            if seen != self._seen.get(name, ()):
                self._seen[name] = seen
                self._dirty.add(name)
                self._rounds.wake()
            if node is None:
                self._seen.pop(name, None)

    @property
    def known(self) -> bool:
        """Everything was read once."""
        vms = self.vms.world if self.vms is not None else None
        return self.world.known and (vms is None or (vms.claims.known and vms.functions.known))

    # -- work

    async def _work(self) -> bool | None:
        return await self._reconcile() if self.leader.is_leader and self.known else None

    async def _reconcile(self) -> bool:
        """False if something has to be tried again."""
        told = said(self.world.policies.items.values())
        value, faults = self._settings.read(told, self.world.settings.items.get(names.SETTINGS_MAP))
        self._say((*told.notes, *faults))
        self.waiting.turn(value.hints, value.config_map)
        done = await self._effective.publish(told, faults)
        wanted = nodes.Wanted(not told.manager, value.default_config)
        claims = self.vms.world.claims.items.values() if self.vms is not None else ()
        functions = self.vms.world.functions.items if self.vms is not None else {}
        reserved = nodes.reserved(self.world.devices.items.values(), claims, functions)
        dirty, self._dirty = self._dirty, set()
        self.tally.nodes(len(self.world.nodes.items))
        for name in sorted(dirty):
            node = self.world.nodes.items.get(name)
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
        self.world.nodes.keep(node, written)
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
        if self.world.away or not self.known:
            return 503, "text/plain", f"{self.world.away or 'not everything was read yet'}\n".encode()
        if self.webhook is not None and self.webhook.missing:
            return 503, "text/plain", f"{self.webhook.missing}\n".encode()
        return 200, "text/plain", b"ok\n"


def _sentence(patch: NodePatch) -> str:
    changed = patch.labels | patch.annotations
    return ", ".join(f"{name} removed" if value is None else f"{name}={value}" for name, value in changed.items())
