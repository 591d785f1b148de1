"""The source for a cluster: looks from watches, asks as patches, followed until it is known how they ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from aliquot.core.config.load import load
from aliquot.core.engine.step_timing import Watch, unwatched
from aliquot.dashboard.change_requests import (
    AnyAsk,
    Attach,
    Cut,
    Detach,
    MakeRoom,
    Repair,
    SetFunctions,
    SetLayout,
    SetVgpus,
)
from aliquot.dashboard.cluster import executor as doing
from aliquot.dashboard.cluster import history
from aliquot.dashboard.cluster import node_views as looks
from aliquot.dashboard.cluster import previews as previewing
from aliquot.dashboard.cluster import vm_overview as virtual
from aliquot.dashboard.cluster.access_review import Reviews, Right, User
from aliquot.dashboard.cluster.cluster_cache import View
from aliquot.dashboard.cluster.desired_state import Configs, Way, way
from aliquot.dashboard.cluster.node_views import Parts
from aliquot.dashboard.cluster.outcome_watch import Patience
from aliquot.dashboard.cluster.user_client import Pen
from aliquot.dashboard.local.fleet_state import Board
from aliquot.dashboard.local.preview_requests import nodes_of, policy
from aliquot.dashboard.ports import Tell
from aliquot.dashboard.view_models import CLUSTER, Change, Done, Fleet, NodeLook, Person, Preview, Virtual
from aliquot.errors import AliquotError, PermissionDeniedError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.config_label import Source as Text
from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.kinds.harvester import GROUP

GATHER_S = 0.1
"""What changes within this time is looked at once."""
CHECK_S = 2.0
_NODES = (Right("patch", "", "nodes"),)
_MACHINES = (Right("patch", "kubevirt.io", "virtualmachines"),)
RIGHTS: Mapping[str, tuple[Right, ...]] = {
    "config": _NODES,
    "repair": _NODES,
    "cut": _NODES,
    "make-room": _NODES,
    "functions": (Right("patch", GROUP, "sriovgpudevices"),),
    "vgpus": (Right("patch", GROUP, "vgpudevices"),),
    "layout": (Right("patch", GROUP, "migconfigurations"),),
    "attach": _MACHINES,
    "detach": _MACHINES,
}
"""What each kind of ask needs of the person's own rights."""


class Cluster:
    """See ``dashboard.ports.Source``. ``clock`` is wall time in seconds."""

    kind = CLUSTER

    def __init__(
        self,
        api: Api,
        pen: Pen,
        reviews: Reviews,
        *,
        title: str,
        kubevirt_namespace: str,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.title = title
        self.steps: Watch = unwatched
        self.api = api
        self.view = View(api, self._nodes_changed, self._something_changed, kubevirt_namespace=kubevirt_namespace)
        self.pen, self.reviews = pen, reviews
        self.patience = patience or Patience()
        self._clock = clock
        self._board = Board()
        self._configs = Configs(self.view, api.namespace)
        self._dirty: set[str] = set()
        self._rows: tuple[int, Virtual] = (-1, Virtual())
        self._named: tuple[int, tuple[str, ...]] = (-1, ())
        self._wake = asyncio.Event()
        self._beside = False

    # -- looking

    @property
    def fleet(self) -> Fleet:
        return self._board.fleet

    @property
    def virtual(self) -> Virtual:
        revision = self.fleet.revision
        if self._rows[0] != revision:
            self._rows = revision, virtual.rows_of(self.view, self.fleet)
        return self._rows[1]

    @property
    def configs(self) -> tuple[str, ...]:
        revision = self.fleet.revision
        if self._named[0] != revision:
            self._named = revision, self._config_names()
        return self._named[1]

    def _config_names(self) -> tuple[str, ...]:
        """All that some node knows, those made for one node alone left out."""
        texts: dict[str, None] = {}
        for node in self.fleet.nodes:
            told = self.view.document(node.name, document.GPUS)
            for source in self._configs.sources(node.name, told) if told is not None else ():
                texts.setdefault(source.text or "")
        found: dict[str, None] = {}
        for text in texts:
            try:
                found |= dict.fromkeys(load(text, "").names if text else ())
            except AliquotError:
                continue  # its node says so in its state
        return tuple(found)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.follow())
            group.create_task(self._look())

    async def _look(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._wake.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                pass
            self._wake.clear()
            self._show()

    def _show(self) -> None:
        away = self.view.away
        step = "kubectl get --raw /readyz" if away else ""
        trouble = f"the API server cannot be asked: {away}" if away else ""
        dirty, self._dirty = self._dirty, set()
        beside, self._beside = self._beside, False
        if self.view.ready:
            self._take(dirty)
        self._board.state(ready=self.view.ready, trouble=trouble, next_step=step)
        if beside:
            self._board.moved()

    def _take(self, dirty: set[str]) -> None:
        found: list[tuple[NodeLook, Virtual | None]] = []
        gone = []
        for name in dirty:
            parts = self.parts(name)
            told = parts.gpus
            if told is not None:
                self.view.want(self._configs.maps(name, told))
            if parts.concerns and (parts.node is not None or told is not None or parts.vgpus is not None):
                found.append((looks.look(parts, self._clock()), None))
            else:
                gone.append(name)
        self._board.show(found, gone)

    def parts(self, name: str) -> Parts:
        """Everything that is known of a node."""
        view = self.view
        return looks.current(
            Parts(
                name,
                view.nodes.items.get(name),
                view.document(name, document.GPUS),
                view.document(name, document.VGPUS),
                view.pods_on(name),
                self.api.namespace,
            )
        )

    def _nodes_changed(self, found: set[str]) -> None:
        self._dirty |= found
        self._wake.set()

    def _something_changed(self) -> None:
        self._beside = True
        self._wake.set()

    async def changed(self, since: int) -> None:
        await self._board.changed(since)

    # -- asking

    async def preview(self, ask: AnyAsk, who: Person) -> Preview:
        reason = await self.may(who, str(ask.__struct_config__.tag))
        if reason:
            raise PermissionDeniedError(reason)
        policy(ask)
        if isinstance(ask, SetFunctions | SetVgpus | SetLayout):
            return previewing.objects_asked(ask, self.view.known.world(), self._look_of)
        if isinstance(ask, Attach | Detach):
            return await previewing.machine(ask, self.api, self.view, self.virtual)
        ways = []
        for node in nodes_of(ask):
            ways.append(await self._way(ask, node))
            await asyncio.sleep(0)  # those of a thousand nodes take seconds: others have their turn
        return previewing.nodes(ask, ways)

    async def _way(self, ask: AnyAsk, node: str) -> tuple[str, Way | Trouble]:
        look = self._look_of(node)
        if look is None:
            return node, Trouble("NoNode", f"there is no node {node} with GPUs (any more)", (), "kubectl get nodes")
        if look.trouble:
            return node, Trouble("Away", look.trouble, (), look.next_step)
        parts = self.parts(node)
        sources = self._configs.sources(node, parts.gpus) if parts.gpus is not None else []
        label = ask.config if not isinstance(ask, Cut | MakeRoom | Repair) else look.config  # type: ignore[union-attr]
        if label.startswith(names.OWN_PREFIX):
            sources.append(await self._own(node))
        return node, way(ask, parts, sources)  # type: ignore[arg-type]

    async def _own(self, node: str) -> Text:
        return await doing.own_source(self.api, node)

    def _look_of(self, node: str) -> NodeLook | None:
        return self.fleet.by_name.get(node)

    # -- doing

    async def carry_out(self, preview: Preview, who: Person, tell: Tell) -> Done:
        if who.reads_only:
            return Done("refused", "Nothing was changed: you may look, and change nothing.", code="NO_PERMISSION")
        if preview.obstacles:
            first = preview.obstacles[0]
            return Done("refused", f"Nothing was changed: {first.message}", code=first.rule, next_step=first.next_step)
        if not preview.acts:
            return Done("nothing", "There was nothing to do: it is as asked already.")
        for node in preview.nodes:
            self._board.begin(node, who.name)
        try:
            return await doing.carry_out(self, preview, who, tell)
        except AliquotError as error:
            step = error.next_step or ""
            return Done("refused", f"Nothing was changed: {error.brief}", error.details, error.code, step)
        finally:
            for node in preview.nodes:
                self._board.end(node, who.name)
            self._nodes_changed(set(preview.nodes))

    # -- the past, and rights

    async def history(self, node: str | None = None, most: int = 200) -> tuple[Change, ...]:
        return await history.changes(self.api, node, most, self.view.pasts(node))

    async def may(self, who: Person, what: str) -> str:
        if who.reads_only:
            return "You may look, and change nothing."
        try:
            return await self._may(who, what)
        except AliquotError as error:  # what was seen last is shown all the same
            return f"Nobody can tell now what you may: {error.brief}"

    async def _may(self, who: Person, what: str) -> str:
        maps = tuple(Right(verb, "", "configmaps", self.api.namespace) for verb in ("create", "patch"))
        for right in (*RIGHTS.get(what, ()), *(maps if what in ("cut", "make-room") else ())):
            if who.token:
                user = await self.reviews.user(who.token)
                known = user if user is not None else User(who.name, "", who.groups)
                allowed = user is not None and await self.reviews.allowed(known, right)
            else:
                allowed = await self.reviews.own(right)
            if not allowed:
                return f"{who.name} may not {right} in this cluster."
        return ""

    async def aclose(self) -> None:
        await self.api.aclose()
