"""Controller of the cluster: passes ClusterPolicy to the agents and labels the nodes for the agent's DaemonSet.

It is level-triggered: it writes only the difference between desired and actual state, so an idle cluster sees no
writes. With several replicas, only the one that holds the Lease writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.foundation.http_server import Answer, Page, answer_ok, text_answer
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import KIND_TIMING, Key
from aliquot.kubernetes.client.leader_election import LeaderElector, LeaseTiming
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.client.work_loop import WorkLoop
from aliquot.kubernetes.controller.informers import ClusterInformers
from aliquot.kubernetes.controller.metrics import ControllerStateCollector
from aliquot.kubernetes.dra.extender.options import ExtenderOptions
from aliquot.kubernetes.gpu.gpu_operands import NodePatch
from aliquot.kubernetes.label_agent.controller import node_labels as nodes
from aliquot.kubernetes.label_agent.controller.effective_settings import (
    EffectiveSettingsPublisher,
    MergedSettings,
    read_cluster_policy,
)
from aliquot.kubernetes.label_agent.controller.pending_pods import PATIENCE_S, PendingPodWatcher
from aliquot.kubernetes.virtual_machines.controller.controller import VmController
from aliquot.kubernetes.virtual_machines.controller.controller import VmControllerTiming as DevicesPace
from aliquot.kubernetes.virtual_machines.controller.node_cleanup import PATIENCE_S as MISSING_S
from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions
from aliquot.metrics.controller_metrics import ControllerMetrics

if TYPE_CHECKING:
    from aliquot.kubernetes.controller.extender import Extender
    from aliquot.kubernetes.virtual_machines.webhook.main import Webhook

LEASE = "aliquot-controller"
GATHER_S = 0.1
"""Seconds in which changes are gathered into one reconcile cycle."""
RETRY = Backoff(first=1.0, longest=60.0)
"""Pause before failed work is retried."""


class ControllerPace(msgspec.Struct, frozen=True):
    """Timing of the controller."""

    lease: LeaseTiming = LeaseTiming()
    watch: WatchTiming = KIND_TIMING
    patience_s: float = PATIENCE_S
    """Seconds that a pod may be pending before it gets a hint."""
    missing_s: float = MISSING_S
    """Seconds that a node may be missing before the objects of its devices are deleted."""


DEFAULT_PACE = ControllerPace()


class Controller:
    """The controller process.

    ``pages`` are its HTTP pages by path. ``vms`` is its part for VMs, which runs concurrently; None if disabled.
    """

    def __init__(
        self,
        api: Api,
        *,
        identity: str | None = None,
        pace: ControllerPace = DEFAULT_PACE,
        kubevirt_namespace: str = "",
        webhook: WebhookOptions | None = None,
        extender: ExtenderOptions | None = None,
    ) -> None:
        self.api = api
        self.metrics = ControllerMetrics()
        self.leader = LeaderElector(
            api, LEASE, identity=identity, timing=pace.lease, on_change=self._leadership_changed
        )
        self.informers = ClusterInformers(self._nodes_changed, self._all_changed, pace.watch)
        self.waiting = PendingPodWatcher(
            api,
            lambda: self.informers.nodes.items,
            self.metrics,
            patience_s=pace.patience_s,
            timing=pace.watch,
        )
        self.vms = self._build_vms(kubevirt_namespace, pace) if kubevirt_namespace else None
        metrics_page: Page = self.metrics.page.render
        self.pages = {"/healthz": answer_ok, "/readyz": self._readyz, "/metrics": metrics_page}
        self.https_pages: dict[str, Page] = {} if self.vms is None else self.vms.pages
        self.webhook = self._webhook(webhook or WebhookOptions())
        self.extender = self._extender(extender or ExtenderOptions(), pace.watch)
        self.metrics.registry.register(
            ControllerStateCollector(
                lambda: self.waiting.counts, lambda: self.webhook.expires_at if self.webhook is not None else None
            )
        )
        self._effective = EffectiveSettingsPublisher(api, self.informers.effective, self.metrics)
        self._settings = MergedSettings()
        self._work_loop = WorkLoop(GATHER_S, RETRY)
        self._dirty: set[str] = set()
        self._observed: dict[str, object] = {}
        self._warnings = NewWarnings(log)

    async def run(self) -> None:
        """Run forever. Raises only errors that no retry can fix."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.follow(self.api))
            group.create_task(self.waiting.run())
            if self.vms is not None:
                group.create_task(self.vms.run())
            if self.webhook is not None:
                group.create_task(self.webhook.run())
            if self.extender is not None:
                group.create_task(self.extender.run())
            async with self.leader:
                await self._work_loop.run(self._work)

    def _build_vms(self, namespace: str, pace: ControllerPace) -> VmController:
        return VmController(
            self.api,
            lambda: self.leader.is_leader,
            (self.informers.nodes, self.informers.devices),
            self.metrics,
            namespace=namespace,
            timing=DevicesPace(pace.watch, pace.missing_s),
            on_claims_changed=self._mark_all_dirty,
        )

    def _webhook(self, options: WebhookOptions) -> Webhook | None:
        """Create the webhook, and import its libraries, only if it serves."""
        if options.port < 0 or self.vms is None:
            return None
        from aliquot.kubernetes.virtual_machines.webhook.main import Webhook

        webhook = Webhook(self.api, self.vms.informers, options, lambda: self.leader.is_leader, self.https_pages)
        webhook.on_review = self.metrics.count_review
        return webhook

    def _extender(self, options: ExtenderOptions, timing: WatchTiming) -> Extender | None:
        """Create the scheduler extender, and import its libraries, only if it serves."""
        if options.port < 0:
            return None
        from aliquot.kubernetes.controller.extender import Extender

        return Extender(self.api, options, timing, self.metrics.count_rating)

    # -- events

    def _leadership_changed(self, leading: bool) -> None:
        log.info("this is %s the controller", "now" if leading else "no longer")
        self.metrics.set_leading(leading)
        if not leading:
            self.waiting.set_active(False)
        if self.webhook is not None:
            self.webhook.leadership_changed()
        self._all_changed(set())

    def _all_changed(self, _: set[Key]) -> None:
        self._mark_all_dirty()
        if self.vms is not None:
            self.vms.wake()

    def _mark_all_dirty(self) -> None:
        """Mark all nodes for the next reconcile cycle."""
        self._dirty |= set(self.informers.nodes.by_name)
        self._work_loop.wake()

    def _nodes_changed(self, changed: set[Key]) -> None:
        """Mark nodes whose labels or annotations changed; a heartbeat does not count."""
        self.waiting.nodes_changed()
        if self.vms is not None:
            self.vms.wake()
        for _, name in changed:
            node = self.informers.nodes.get(name)
            observed = None if node is None else _observed_part(node)
            if observed != self._observed.get(name, ()):
                self._observed[name] = observed
                self._dirty.add(name)
                self._work_loop.wake()
            if node is None:
                self._observed.pop(name, None)

    @property
    def synced(self) -> bool:
        """True once all objects are read."""
        vms = self.vms.informers if self.vms is not None else None
        return self.informers.synced and (vms is None or (vms.claims.synced and vms.functions.synced))

    # -- work

    async def _work(self) -> bool | None:
        return await self._reconcile() if self.leader.is_leader and self.synced else None

    async def _reconcile(self) -> bool:
        """Run a reconcile cycle. Returns False if something must be retried."""
        policy = read_cluster_policy(self.informers.policies.items)
        settings, errors = self._settings.read(policy, next(iter(self.informers.settings.items), None))
        self._warnings.update((*policy.notes, *errors))
        self.waiting.set_active(settings.hints, settings.config_map)
        done = await self._effective.publish(policy, errors)
        wanted = nodes.WantedNodeLabels(not policy.manager, settings.default_config)
        claims = self.vms.informers.claims.items if self.vms is not None else ()
        functions = self.vms.informers.functions.by_name if self.vms is not None else {}
        reserved = nodes.reserved(self.informers.devices.items, claims, functions)
        dirty, self._dirty = self._dirty, set()
        self.metrics.set_nodes(len(self.informers.nodes.items))
        for name in sorted(dirty):
            node = self.informers.nodes.get(name)
            if node is None:
                continue
            patch = nodes.patch(node, wanted, reserved.get(name, ()))
            if patch and not await self._change(node, patch):
                self._dirty.add(name)
                done = False
        return done

    async def _change(self, node: Node, patch: NodePatch) -> bool:
        """Patch a node unless it changed since it was read; then its event triggers the next cycle."""
        if not self.leader.is_leader:
            return True
        try:
            written = await self.api.patch(Node, node.name, patch.body(node.metadata.resource_version))
        except NotFoundError:
            return True
        except ConflictError:
            return False  # it may be a heartbeat, whose event triggers no cycle
        except ApiError as error:
            return self._failed("node", error)
        log.info("node %s: %s", node.name, _sentence(patch))
        self.informers.nodes.record_write(node, written)
        if self.informers.nodes.get(node.name) is not None:
            self._observed[node.name] = _observed_part(written)  # if another program reverts it, the node changes again
        self.metrics.count_write("node")
        return True

    def _failed(self, what: str, error: ApiError) -> bool:
        log.warning("%s", "; ".join((error.brief, *error.details)))
        self.metrics.count_failure(what)
        return False

    # -- pages

    def _readyz(self, _: Mapping[str, str]) -> Answer:
        """Return 503 until all objects are read and while the API server is unavailable. Followers are ready too."""
        if self.informers.unavailable or not self.synced:
            return text_answer(503, self.informers.unavailable or "not all objects are read yet")
        if self.webhook is not None and self.webhook.missing:
            return text_answer(503, self.webhook.missing)
        return text_answer(200, "ok")


def _observed_part(node: Node) -> object:
    return node.metadata.labels, node.metadata.annotations


def _sentence(patch: NodePatch) -> str:
    changed = patch.labels | patch.annotations
    return ", ".join(f"{name} removed" if value is None else f"{name}={value}" for name, value in changed.items())
