"""Publisher of the node's document for the dashboard, with a rate limit for each kind of change.

An idle node writes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from aliquot.core.model.claims import without_holders
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.events import rfc3339
from aliquot.kubernetes.client.objects import ConfigMap
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.node_agent.pod_holders import Uses, held_by_pods

BACKOFF = Backoff(first=1.0, longest=60.0)
_MAX_ERROR = 400


class PublishPace(msgspec.Struct, frozen=True):
    """Timing of writes, in seconds."""

    least_s: float = 1.0
    """Shortest time between two writes."""
    holders_s: float = 30.0
    """The same if only the holders differ, or the set of devices with usage data."""
    usage_s: float = 300.0
    """The same if only the usage data differ."""
    check_s: float = 600.0
    """Interval of checks whether the document was deleted or changed."""
    busy_s: float = 5.0
    """Longest time that a write waits for the end of the agent's change, whose progress is on the node."""


class DocumentPublisher:
    """Publisher of a node's document.

    ``kind`` is ``node_document.GPUS`` or ``VGPUS``. ``uses`` asks kubelet for the devices of pods; None without a
    kubelet. ``problem`` is why the last write failed; empty if it succeeded. ``on_held`` is called with the inventory
    that includes the pods.
    """

    def __init__(
        self, api: Api, node: str, kind: str, *, namespace: str, uses: Uses | None, pace: PublishPace | None = None
    ) -> None:
        self._api = api
        self._node = node
        self._kind = kind
        self._namespace = namespace
        self._uses = uses
        self._pace = pace or PublishPace()
        self._news = asyncio.Event()
        self._latest: tuple[NodeDocument, str] | None = None
        self._published: tuple[NodeDocument, str] | None = None
        self._unreadable: tuple[str, str] | None = None
        self._previous_loaded = False
        self._old_since = ""
        self._busy_since: float | None = None
        self._text = ""
        self._last = float("-inf")
        self.problem = ""
        self.on_held: Callable[[Inventory], None] = lambda _: None

    def update(self, document: NodeDocument, uid: str, *, busy: bool = False) -> None:
        """Set the newest document and the uid of its node object. ``busy`` is True while the agent changes the GPUs."""
        self._latest, self._unreadable = (document, uid), None
        if not busy:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = time.monotonic()
        self._news.set()

    def report_unreadable(self, read_error: str, uid: str) -> None:
        """Publish that the GPUs cannot be read, with the last document of this or a previous agent as outdated."""
        failure = read_error[:_MAX_ERROR], uid
        if self._unreadable == failure:
            return
        self._unreadable = failure
        if self._latest is not None:
            self._latest = _with_error(self._latest[0], failure[0]), uid
        self._news.set()

    async def run(self) -> None:
        """Run forever. A failed write is logged once and retried; nothing waits for it."""
        failures = 0
        while True:
            await wait_for_event(self._news, self._pace.check_s)
            self._news.clear()
            try:
                await self._publish_pending()
            except ApiError as error:
                self._log_failure(error)
                self._news.set()
                failures += 1
                await asyncio.sleep(BACKOFF.pause(failures))
            else:
                self.problem, failures = "", 0

    async def _publish_pending(self) -> None:
        """Write until the published document is the newest one."""
        await self._load_previous()
        while self._latest is not None:
            left = self._busy_left(self._latest[1])
            if left > 0:
                await self._pause(left)
                continue
            document, uid = await self._with_pod_holders(self._latest[0]), self._latest[1]
            wait = self._due(document, uid)
            if wait is None:
                await self._check()
                return
            if wait > 0:
                await self._pause(wait)
                continue
            await self._write(document, uid)

    async def _load_previous(self) -> None:
        """Load the document of a previous agent for this node object if nothing can be read now."""
        if self._latest is not None or self._unreadable is None or self._previous_loaded:
            return
        try:
            found = await self._api.get(ConfigMap, self._name, self._namespace)
        except NotFoundError:
            found = ConfigMap()
        self._previous_loaded = True
        text = found.data.get(documents.KEY, "")
        last = documents.decode(text)
        if self._latest is None and self._unreadable is not None and last is not None:
            read_error, uid = self._unreadable
            if uid in [owner.uid for owner in found.metadata.owner_references]:
                self._old_since = last.at if last.read_error else ""
                last = msgspec.structs.replace(last, at="")
                self._published, self._text, self._latest = (last, uid), text, (_with_error(last, read_error), uid)

    def _busy_left(self, uid: str) -> float:
        """Return the seconds in which to write nothing and to send no request to kubelet."""
        if self._busy_since is None or self._published is None or self._published[1] != uid:
            return 0.0
        return self._busy_since + self._pace.busy_s - time.monotonic()

    def _due(self, document: NodeDocument, uid: str) -> float | None:
        """Return the seconds until the next write is due; None if the published document is equal."""
        if self._published is None or self._published[1] != uid:
            return 0.0
        published = self._published[0]
        if document == published:
            return None
        since = time.monotonic() - self._last
        if _stable_part(document) != _stable_part(published):
            return self._pace.least_s - since
        if document.inventory != published.inventory or _usage_keys(document) != _usage_keys(published):
            return self._pace.holders_s - since
        return self._pace.usage_s - since

    async def _pause(self, seconds: float) -> None:
        """Sleep, but end early for a new document, which may be due sooner."""
        self._news.clear()
        await wait_for_event(self._news, seconds)

    async def _with_pod_holders(self, document: NodeDocument) -> NodeDocument:
        """Return the document with the pods to which kubelet allocated devices, if kubelet answers."""
        if self._uses is None:
            return document
        try:
            held = held_by_pods(document.inventory, await self._uses())
        except AliquotError:
            return document
        self.on_held(held)
        return msgspec.structs.replace(document, inventory=held)

    async def _write(self, document: NodeDocument, uid: str) -> None:
        at = (document.read_error and self._old_since) or rfc3339(time.time())
        text = documents.encode(msgspec.structs.replace(document, at=at))
        await write_config_map(self._api, self._namespace, self._name, self._body(text, uid))
        self._published, self._text, self._last = (document, uid), text, time.monotonic()
        self._old_since = at if document.read_error else ""

    async def _check(self) -> None:
        """Write the document again if another program deleted or changed it."""
        if not self._text or time.monotonic() - self._last < self._pace.check_s:
            return
        self._last = time.monotonic()
        try:
            found = await self._api.get(ConfigMap, self._name, self._namespace)
        except NotFoundError:
            found = ConfigMap()
        if found.data.get(documents.KEY) != self._text:
            self._published = None
            self._news.set()

    @property
    def _name(self) -> str:
        return documents.map_name(self._node, self._kind)

    def _body(self, text: str, uid: str) -> dict[str, object]:
        """Build the ConfigMap. Its owner is the node, not the pod: the last document is useful without an agent."""
        labels = {"app.kubernetes.io/name": "aliquot", documents.LABEL: self._kind}
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        meta: dict[str, object] = {"name": self._name, "labels": labels}
        return {"metadata": meta | ({"ownerReferences": [owner]} if uid else {}), "data": {documents.KEY: text}}

    def _log_failure(self, error: ApiError) -> None:
        if error.brief != self.problem:
            log.warning("the node's document was not written: %s", error.brief)
        self.problem = error.brief


async def write_config_map(api: Api, namespace: str, name: str, body: dict[str, object]) -> None:
    """Patch a ConfigMap, or create it if it does not exist. Raises ApiError."""
    try:
        await api.patch(ConfigMap, name, body, namespace=namespace)
    except NotFoundError:
        await api.create(ConfigMap, body, namespace)


def _stable_part(document: NodeDocument) -> NodeDocument:
    """Return the document without holders, usage data and the text of a read error."""
    inventory = document.inventory
    gpus = tuple(map(without_holders, inventory.gpus))
    bare = msgspec.structs.replace(inventory, gpus=gpus)
    return msgspec.structs.replace(document, usage=(), inventory=bare, read_error="any" if document.read_error else "")


def _with_error(document: NodeDocument, read_error: str) -> NodeDocument:
    """Return the document with a read error."""
    return msgspec.structs.replace(document, read_error=read_error)


def _usage_keys(document: NodeDocument) -> set[tuple[str, int | None, str]]:
    """Return the keys of the devices with usage data."""
    return {(u.gpu, u.instance, u.profile) for u in document.usage}
