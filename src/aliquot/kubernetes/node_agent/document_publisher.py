"""The node's document for whoever looks on (the dashboard): written when something changed, and not oftener than that
is worth a write. An idle node writes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from aliquot.core.model.claims import without_holders
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, DriverHangsError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.gpu import node_document as documents
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.gpu.node_status import rfc3339
from aliquot.kubernetes.node_agent.hang_reporter import HANG_POLL_S
from aliquot.kubernetes.node_agent.pod_holders import Uses, held_by_pods

BACKOFF = Backoff(first=1.0, longest=60.0)
_MAX_ERROR = 400


class PublishPace(msgspec.Struct, frozen=True):
    """Seconds between two writes: at least ``least_s``; ``holders_s`` where only who holds what differs, or of
    what there are figures of use, ``usage_s`` where only these figures do. ``check_s`` is how often it is read whether
    somebody took the document away. While the agent is at work a write waits for the end, ``busy_s`` at most: how far
    it is stands on the node.
    """

    least_s: float = 1.0
    holders_s: float = 30.0
    usage_s: float = 300.0
    check_s: float = 600.0
    busy_s: float = 5.0


class DocumentPublisher:
    """``kind`` is the document's kind (``node_document.GPUS`` or ``VGPUS``), ``uses`` asks kubelet which pods have
    what, None where there is none. ``problem`` is why it could not be written, "" if it could. ``on_held`` is told the
    GPUs with the pods that are on them.
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
        """The newest look, and the uid of the node object that the document goes with. ``busy``: what was seen is being
        changed by the agent.
        """
        self._latest, self._unreadable = (document, uid), None
        if not busy:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = time.monotonic()
        self._news.set()

    def report_unreadable(self, read_error: str, uid: str) -> None:
        """The GPUs cannot be read, and why: what was seen last, by a former agent where not by this one, is old."""
        failure = read_error[:_MAX_ERROR], uid
        if self._unreadable == failure:
            return
        self._unreadable = failure
        if self._latest is not None:
            self._latest = _with_error(self._latest[0], failure[0]), uid
        self._news.set()

    async def watch_hangs(self, hang: Callable[[], DriverHangsError | None], node: Callable[[], Node | None]) -> None:
        """For ever. A change whose driver call hangs is waited for, and no look can tell of it meanwhile. ``hang``
        returns the call, as an error.
        """
        while True:
            await asyncio.sleep(HANG_POLL_S)
            found, error = node(), hang()
            if found is not None and error is not None:
                self.report_unreadable(error.brief, found.metadata.uid)

    async def run(self) -> None:
        """For ever. What cannot be written is logged once and tried again: nothing waits for it."""
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
        """Writes until what is there is what was seen."""
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
        """What a former agent saw of this node object is all that is known where nothing can be read."""
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
        """Seconds for which nothing is worth a write, or even a question to kubelet."""
        if self._busy_since is None or self._published is None or self._published[1] != uid:
            return 0.0
        return self._busy_since + self._pace.busy_s - time.monotonic()

    def _due(self, document: NodeDocument, uid: str) -> float | None:
        """Seconds until this is worth a write, None where it says what was told."""
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
        """Ends early for news, which may be worth more."""
        self._news.clear()
        await wait_for_event(self._news, seconds)

    async def _with_pod_holders(self, document: NodeDocument) -> NodeDocument:
        """With the pods that kubelet gave devices to, where it can say."""
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
        """Somebody may have deleted or changed it."""
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
        """It goes with its node, not with the pod: what an agent saw last is worth knowing while it is away."""
        labels = {"app.kubernetes.io/name": "aliquot", documents.LABEL: self._kind}
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        meta: dict[str, object] = {"name": self._name, "labels": labels}
        return {"metadata": meta | ({"ownerReferences": [owner]} if uid else {}), "data": {documents.KEY: text}}

    def _log_failure(self, error: ApiError) -> None:
        if error.brief != self.problem:
            log.warning("the node's document was not written: %s", error.brief)
        self.problem = error.brief


async def write_config_map(api: Api, namespace: str, name: str, body: dict[str, object]) -> None:
    """Makes a ConfigMap say this, or creates it. Raises ApiError."""
    try:
        await api.patch(ConfigMap, name, body, namespace=namespace)
    except NotFoundError:
        await api.create(ConfigMap, body, namespace)


def _stable_part(document: NodeDocument) -> NodeDocument:
    """Without who holds what, figures of use, and which trouble it is."""
    inventory = document.inventory
    gpus = tuple(map(without_holders, inventory.gpus))
    bare = msgspec.structs.replace(inventory, gpus=gpus)
    return msgspec.structs.replace(document, usage=(), inventory=bare, read_error="any" if document.read_error else "")


def _with_error(document: NodeDocument, read_error: str) -> NodeDocument:
    """As it was seen before that trouble."""
    return msgspec.structs.replace(document, read_error=read_error)


def _usage_keys(document: NodeDocument) -> set[tuple[str, int | None, str]]:
    """What there are figures of use of."""
    return {(u.gpu, u.instance, u.profile) for u in document.usage}
