"""The source for a cluster: state from watches, changes as patches, followed until their outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from aliquot.core.config.load import load
from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.dashboard.change_requests import (
    AnyChangeRequest,
    AttachDevices,
    DetachDevices,
    FitInstance,
    PartitionGpu,
    Repair,
    SetLayout,
    SetVgpus,
    SwitchFunctions,
)
from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.cluster import executor, history
from aliquot.dashboard.cluster import node_views as views
from aliquot.dashboard.cluster import previews as previewing
from aliquot.dashboard.cluster import vm_overview as virtual
from aliquot.dashboard.cluster.access_review import AccessReviews, AccessRight, ClusterUser
from aliquot.dashboard.cluster.claims import ClusterClaims
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.desired_state import Configs, NodeChange, node_change
from aliquot.dashboard.cluster.node_views import NodeParts
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.user_client import UserClients
from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.preview_requests import nodes_of, policy
from aliquot.dashboard.view_models import (
    CLUSTER,
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    ObservedNode,
    PastChange,
    Person,
    VirtualizationView,
)
from aliquot.errors import AliquotError, PermissionDeniedError
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.config_label import NamedConfigSource as Text
from aliquot.kubernetes.kinds.harvester import GROUP

GATHER_S = 0.1
"""Changes within this time are processed together."""
CHECK_S = 2.0
_NODES = (AccessRight("patch", "", "nodes"),)
_VMS = (AccessRight("patch", "kubevirt.io", "virtualmachines"),)
RIGHTS: Mapping[str, tuple[AccessRight, ...]] = {
    "config": _NODES,
    "repair": _NODES,
    "cut": _NODES,
    "make-room": _NODES,
    "functions": (AccessRight("patch", GROUP, "sriovgpudevices"),),
    "vgpus": (AccessRight("patch", GROUP, "vgpudevices"),),
    "layout": (AccessRight("patch", GROUP, "migconfigurations"),),
    "attach": _VMS,
    "detach": _VMS,
}
"""The user's permissions that each kind of request needs."""


class ClusterSource:
    """See ``dashboard.ports.FleetSource``. ``clock`` is wall time in seconds."""

    kind = CLUSTER

    def __init__(
        self,
        api: Api,
        clients: UserClients,
        reviews: AccessReviews,
        *,
        title: str,
        kubevirt_namespace: str,
        timeouts: OutcomeTimeouts | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.title = title
        self.steps: StepListener = ignore_step
        self.api = api
        self.cache = ClusterCache(
            api, self._nodes_changed, self._something_changed, kubevirt_namespace=kubevirt_namespace
        )
        self._claims = ClusterClaims(self.cache.slices, self.cache.claims)
        self.clients, self.reviews = clients, reviews
        self.timeouts = timeouts or OutcomeTimeouts()
        self._clock = clock
        self._state = FleetState()
        self._configs = Configs(self.cache, api.namespace)
        self._dirty: set[str] = set()
        self._rows: tuple[int, VirtualizationView] = (-1, VirtualizationView())
        self._named: tuple[int, tuple[str, ...]] = (-1, ())
        self._wake = asyncio.Event()
        self._others_changed = False

    # -- observation

    @property
    def fleet(self) -> ObservedFleet:
        return self._state.fleet

    @property
    def virtual(self) -> VirtualizationView:
        revision = self.fleet.revision
        if self._rows[0] != revision:
            self._rows = revision, virtual.rows_of(self.cache, self.fleet)
        return self._rows[1]

    @property
    def configs(self) -> tuple[str, ...]:
        revision = self.fleet.revision
        if self._named[0] != revision:
            self._named = revision, self._config_names()
        return self._named[1]

    def _config_names(self) -> tuple[str, ...]:
        """Return the named configs of all nodes, without those generated for one node."""
        texts: dict[str, None] = {}
        for node in self.fleet.nodes:
            published = self.cache.document(node.name, document.GPUS)
            for source in self._configs.sources(node.name, published) if published is not None else ():
                texts.setdefault(source.text or "")
        found: dict[str, None] = {}
        for text in texts:
            try:
                found |= dict.fromkeys(load(text, "").names if text else ())
            except AliquotError:
                continue  # its node's state shows the error
        return tuple(found)

    def claims(self, node: str = "") -> ClaimsView:
        return self._claims.view(node, self.fleet.revision)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cache.follow())
            group.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._wake.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass
            self._wake.clear()
            self._publish()

    def _publish(self) -> None:
        unavailable = self.cache.unavailable
        step = "kubectl get --raw /readyz" if unavailable else ""
        error = f"the API server is not available: {unavailable}" if unavailable else ""
        dirty, self._dirty = self._dirty, set()
        others_changed, self._others_changed = self._others_changed, False
        if self.cache.ready:
            self._update_nodes(dirty)
        self._state.set_status(ready=self.cache.ready, error=error, next_step=step)
        if others_changed:
            self._state.mark_changed()

    def _update_nodes(self, dirty: set[str]) -> None:
        found: list[tuple[ObservedNode, VirtualizationView | None]] = []
        gone = []
        for name in dirty:
            parts = self.parts(name)
            published = parts.gpus
            if published is not None:
                self.cache.follow_maps(self._configs.maps(name, published))
            if parts.is_relevant and (parts.node is not None or published is not None or parts.vgpus is not None):
                found.append((views.node_view(parts, self._clock()), None))
            else:
                gone.append(name)
        self._state.update(found, gone)

    def parts(self, name: str) -> NodeParts:
        """Collect the objects of a node."""
        cache = self.cache
        return views.current(
            NodeParts(
                name,
                cache.nodes.get(name),
                cache.document(name, document.GPUS),
                cache.document(name, document.VGPUS),
                cache.pods_on(name),
                self.api.namespace,
            )
        )

    def _nodes_changed(self, found: set[str]) -> None:
        self._dirty |= found
        self._wake.set()

    def _something_changed(self) -> None:
        self._others_changed = True
        self._wake.set()

    async def changed(self, since: int) -> None:
        await self._state.changed(since)

    # -- previews

    async def preview(self, request: AnyChangeRequest, who: Person) -> ChangePreview:
        reason = await self.may(who, str(request.__struct_config__.tag))
        if reason:
            raise PermissionDeniedError(reason)
        policy(request)
        if isinstance(request, SwitchFunctions | SetVgpus | SetLayout):
            return previewing.object_preview(request, self.cache.admission_state.snapshot(), self._node_view)
        if isinstance(request, AttachDevices | DetachDevices):
            return await previewing.vm_preview(request, self.api, self.cache, self.virtual)
        changes = []
        for node in nodes_of(request):
            changes.append(await self._node_change(request, node))
            await asyncio.sleep(0)  # a thousand nodes take seconds: let other tasks run
        return previewing.nodes(request, changes)

    async def _node_change(self, request: AnyChangeRequest, node: str) -> tuple[str, NodeChange | ConfigFailure]:
        node_view = self._node_view(node)
        if node_view is None:
            return node, ConfigFailure("NoNode", f"node {node} with GPUs not found", (), "kubectl get nodes")
        if node_view.error:
            return node, ConfigFailure("Away", node_view.error, (), node_view.next_step)
        parts = self.parts(node)
        sources = self._configs.sources(node, parts.gpus) if parts.gpus is not None else []
        label = request.config if not isinstance(request, PartitionGpu | FitInstance | Repair) else node_view.config  # type: ignore[union-attr]
        if label.startswith(names.OWN_PREFIX):
            sources.append(await self._own_configs(node))
        return node, node_change(request, parts, sources)  # type: ignore[arg-type]

    async def _own_configs(self, node: str) -> Text:
        return await executor.own_source(self.api, node)

    def _node_view(self, node: str) -> ObservedNode | None:
        return self.fleet.by_name.get(node)

    # -- execution

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        if who.reads_only:
            return ChangeOutcome.refused("you have read-only access.", code="NO_PERMISSION")
        if preview.obstacles:
            first = preview.obstacles[0]
            return ChangeOutcome.refused(first.message, code=first.rule, next_step=first.next_step)
        if not preview.actions:
            return ChangeOutcome.nothing("the current state already matches the request.")
        for node in preview.nodes:
            self._state.begin(node, who.name)
        access = executor.ClusterChangeContext(self.cache, self.clients, self.timeouts)
        try:
            return await executor.execute(access, preview, who, report)
        except AliquotError as error:
            step = error.next_step or ""
            return ChangeOutcome.refused(error.brief, error.details, error.code, step)
        finally:
            for node in preview.nodes:
                self._state.end(node, who.name)
            self._nodes_changed(set(preview.nodes))

    # -- history and permissions

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        return await history.changes(self.api, node, most, self.cache.pasts(node))

    async def may(self, who: Person, what: str) -> str:
        if who.reads_only:
            return "You have read-only access."
        try:
            return await self._may(who, what)
        except AliquotError as error:  # the last observed state is still shown
            return f"Your permissions cannot be checked now: {error.brief}"

    async def _may(self, who: Person, what: str) -> str:
        maps = tuple(AccessRight(verb, "", "configmaps", self.api.namespace) for verb in ("create", "patch"))
        for right in (*RIGHTS.get(what, ()), *(maps if what in ("cut", "make-room") else ())):
            if who.token:
                user = await self.reviews.user(who.token)
                known = user if user is not None else ClusterUser(who.name, "", who.groups)
                allowed = user is not None and await self.reviews.allowed(known, right)
            else:
                allowed = await self.reviews.own(right)
            if not allowed:
                return f"{who.name} may not {right} in this cluster."
        return ""

    async def aclose(self) -> None:
        await self.api.aclose()
