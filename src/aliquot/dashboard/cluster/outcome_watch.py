"""Following what was asked until the cluster says how it ended. Nothing here writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from aliquot.dashboard.view_models import Done
from aliquot.kubernetes.client.kind_watch import Shelf
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_status import FAILED, SUCCESS, Status, parse

POLL_S = 0.1
"""Between two looks at what the watches keep: no request is made for it."""
Tell = Callable[[str], None]


class Patience(msgspec.Struct, frozen=True):
    """Seconds: until the agent must have said anything at all, and until it must have ended."""

    answer_s: float = 90.0
    end_s: float = 1800.0


async def node(nodes: Shelf[Node], written: Node, label: str, tell: Tell, patience: Patience) -> Done:
    """Until the agent says that this node's label is met, or why not. ``written`` is the node as the write left it: the
    watch may still tell of a time before that.
    """
    name = written.name
    begun, said = time.monotonic(), ""
    while True:
        found = nodes.items.get(name)
        if found is None:
            return Done("partial", f"Node {name} is no longer in the cluster.")
        found = written if _older(found, written) else found
        labels = found.metadata.labels
        status = parse(found.metadata.annotations.get(names.STATUS_ANNOTATION))
        if labels.get(names.CONFIG_LABEL) != label:
            return Done("partial", f"Somebody else has changed the wish of {name} since.", code="MOVED")
        if status is not None and status.config == label and status.state:
            line = f"{status.state}: {status.message}" + (f" ({status.progress})" if status.progress else "")
            if line != said:
                tell(line)
                said = line
            state = labels.get(names.STATE_LABEL)
            if state == status.state == SUCCESS:
                status_word = "nothing" if status.reason == "AlreadyApplied" else "done"
                return Done(status_word, f"{name}: {status.message}", status.details)
            if state == status.state == FAILED:
                return _failed(name, status)
        waited = time.monotonic() - begun
        if waited > (patience.end_s if said else patience.answer_s):
            what = "has not ended yet: it goes on without this page" if said else "does not answer"
            step = f"kubectl describe node {name}"
            return Done("partial", f"{name}: the wish is written, and the agent {what}.", next_step=step)
        await asyncio.sleep(POLL_S)


def _older(one: Node, other: Node) -> bool:
    """Versions are in order wherever they are numbers."""
    older, newer = one.metadata.resource_version, other.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)


def _failed(name: str, status: Status) -> Done:
    """Its GPUs are as they were unless an apply could not be undone. The wish stays, and is tried again."""
    word = "refused"
    if status.reason == "ApplyFailed":
        word = "undone" if "the former state is back" in status.message else "partial"
    stays = f"The wish {status.config!r} stays on {name}: the agent meets it as soon as it can."
    return Done(word, f"{name}: {status.message}", (*status.details, stays), status.reason, status.next_step)


async def ready(shelf: Shelf[KubeObject], name: str, generation: int, tell: Tell, patience: Patience) -> Done:
    """Until an object's condition ``Ready`` answers for this generation: it is as wished, or why not."""
    begun, said = time.monotonic(), ""
    while True:
        found = shelf.items.get(name)
        if found is None:
            return Done("partial", f"{name} is gone.")
        status = getattr(found, "status", None)
        conditions: tuple[Condition, ...] = getattr(status, "conditions", ())
        told = next((c for c in conditions if c.type == "Ready"), None)
        if told is not None and getattr(status, "observed_generation", 0) >= generation:
            if told.status == "True":
                return Done("done", f"{name} is as wished.")
            line = f"{name}: {told.message or told.reason}"
            if line != said:
                tell(line)
                said = line
            if told.status == "False" and told.reason not in ("Pending", "Waiting"):
                message, _, step = told.message.partition(" | next: ")
                return Done("refused", f"{name}: {message or told.reason}", (), told.reason, step)
        if time.monotonic() - begun > (patience.end_s if said else patience.answer_s):
            what = "it goes on without this page" if said else "no devices agent answers on its node"
            return Done(
                "partial",
                f"{name}: the wish is written, and {what}.",
                next_step=f"kubectl get {shelf.kind.TYPE.plural}",
            )
        await asyncio.sleep(POLL_S)
