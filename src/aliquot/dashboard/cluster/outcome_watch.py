"""Following what was asked until the cluster says how it ended. Nothing here writes."""

from __future__ import annotations

import asyncio
import time

import msgspec

from aliquot.dashboard.view_models import ChangeOutcome
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_status import AgentStatus, parse

POLL_S = 0.1
"""Between two looks at what the watches keep: no request is made for it."""


class OutcomeTimeouts(msgspec.Struct, frozen=True):
    """Seconds: until the agent must have said anything at all, and until it must have ended."""

    answer_s: float = 90.0
    end_s: float = 1800.0


async def node(
    nodes: Informer[Node], written: Node, label: str, report: Report, timeouts: OutcomeTimeouts
) -> ChangeOutcome:
    """Until the agent says that this node's label is met, or why not. ``written`` is the node as the write left it: the
    watch may still tell of a time before that.
    """
    name = written.name
    begun, last_line = time.monotonic(), ""
    while True:
        found = nodes.get(name)
        if found is None:
            return ChangeOutcome("partial", f"Node {name} is no longer in the cluster.")
        found = written if found.is_older_than(written) else found
        labels = found.metadata.labels
        status = parse(found.metadata.annotations.get(names.STATUS_ANNOTATION))
        if labels.get(names.CONFIG_LABEL) != label:
            return ChangeOutcome("partial", f"Somebody else has changed the wish of {name} since.", code="MOVED")
        if status is not None and status.config == label and status.state:
            line = f"{status.state}: {status.message}" + (f" ({status.progress})" if status.progress else "")
            if line != last_line:
                report(line)
                last_line = line
            state = labels.get(names.STATE_LABEL)
            if state == status.state == "success":
                status_word = "nothing" if status.reason == "AlreadyApplied" else "done"
                return ChangeOutcome(status_word, f"{name}: {status.message}", status.details)
            if state == status.state == "failed":
                return _failed(name, status)
        waited = time.monotonic() - begun
        if waited > (timeouts.end_s if last_line else timeouts.answer_s):
            what = "has not ended yet: it goes on without this page" if last_line else "does not answer"
            step = f"kubectl describe node {name}"
            return ChangeOutcome("partial", f"{name}: the wish is written, and the agent {what}.", next_step=step)
        await asyncio.sleep(POLL_S)


def _failed(name: str, status: AgentStatus) -> ChangeOutcome:
    """Its GPUs are as they were unless an apply could not be undone. The wish stays, and is tried again."""
    word = "refused"
    if status.reason == "ApplyFailed":
        word = "undone" if "the former state is back" in status.message else "partial"
    stays = f"The wish {status.config!r} stays on {name}: the agent meets it as soon as it can."
    return ChangeOutcome(word, f"{name}: {status.message}", (*status.details, stays), status.reason, status.next_step)


async def ready(
    informer: Informer[KubeObject], name: str, generation: int, report: Report, timeouts: OutcomeTimeouts
) -> ChangeOutcome:
    """Until an object's condition ``Ready`` answers for this generation: it is as wished, or why not."""
    begun, last_line = time.monotonic(), ""
    while True:
        found = informer.get(name)
        if found is None:
            return ChangeOutcome("partial", f"{name} is gone.")
        status = getattr(found, "status", None)
        conditions: tuple[Condition, ...] = getattr(status, "conditions", ())
        condition = next((c for c in conditions if c.type == "Ready"), None)
        if condition is not None and getattr(status, "observed_generation", 0) >= generation:
            if condition.status == "True":
                return ChangeOutcome("done", f"{name} is as wished.")
            line = f"{name}: {condition.message or condition.reason}"
            if line != last_line:
                report(line)
                last_line = line
            if condition.status == "False" and condition.reason not in ("Pending", "Waiting"):
                message, _, step = condition.message.partition(" | next: ")
                return ChangeOutcome("refused", f"{name}: {message or condition.reason}", (), condition.reason, step)
        if time.monotonic() - begun > (timeouts.end_s if last_line else timeouts.answer_s):
            what = "it goes on without this page" if last_line else "no devices agent answers on its node"
            return ChangeOutcome(
                "partial",
                f"{name}: the wish is written, and {what}.",
                next_step=f"kubectl get {informer.kind.TYPE.plural}",
            )
        await asyncio.sleep(POLL_S)
