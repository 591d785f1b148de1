"""Waiting for the outcome of a change in the cluster. Nothing here writes."""

from __future__ import annotations

import asyncio
import time

import msgspec

from aliquot.core.engine.history import EndStatus
from aliquot.dashboard.view_models import ChangeOutcome
from aliquot.errors import Message
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_status import AgentStatus, parse
from aliquot.kubernetes.gpu.reasons import ALREADY_APPLIED

POLL_S = 0.1
"""The polling interval of the informers' caches. It causes no API requests."""


class OutcomeTimeouts(msgspec.Struct, frozen=True):
    """Timeouts in seconds: until the agent must have responded, and until the change must have ended."""

    answer_s: float = 90.0
    end_s: float = 1800.0


async def node(
    nodes: Informer[Node], written: Node, label: str, report: Report, timeouts: OutcomeTimeouts
) -> ChangeOutcome:
    """Wait until the agent reports that this node's config is applied, or why not.

    ``written`` is the node after the write. The watch may still have an older version.
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
            return ChangeOutcome("partial", f"Another client has changed the config of {name} since.", code="MOVED")
        if status is not None and status.config == label and status.state:
            line = f"{status.state}: {status.message}" + (f" ({status.progress})" if status.progress else "")
            if line != last_line:
                report(line)
                last_line = line
            state = labels.get(names.STATE_LABEL)
            if state == status.state == "success":
                status_word: EndStatus = "nothing" if status.reason == ALREADY_APPLIED else "done"
                return ChangeOutcome(status_word, f"{name}: {status.message}", status.details)
            if state == status.state == "failed":
                return _failed(name, status)
        waited = time.monotonic() - begun
        if waited > (timeouts.end_s if last_line else timeouts.answer_s):
            what = "has not finished: it continues in the background" if last_line else "does not respond"
            step = f"kubectl describe node {name}"
            return ChangeOutcome("partial", f"{name}: the config is set, but the agent {what}.", next_step=step)
        await asyncio.sleep(POLL_S)


def _failed(name: str, status: AgentStatus) -> ChangeOutcome:
    """Describe a failure. The GPUs are unchanged unless the rollback failed. The agent retries the config."""
    stays = f"The config {status.config!r} stays requested on {name}: the agent applies it as soon as possible."
    details = (*status.details, stays)
    word = status.rollback or "refused"
    return ChangeOutcome(word, f"{name}: {status.message}", details, status.reason, status.next_step)


async def ready(
    informer: Informer[KubeObject], name: str, generation: int, report: Report, timeouts: OutcomeTimeouts
) -> ChangeOutcome:
    """Wait until an object's condition ``Ready`` reports the result for this generation."""
    begun, last_line = time.monotonic(), ""
    while True:
        found = informer.get(name)
        if found is None:
            return ChangeOutcome("partial", f"{name} was deleted.")
        status = getattr(found, "status", None)
        conditions: tuple[Condition, ...] = getattr(status, "conditions", ())
        condition = next((c for c in conditions if c.type == "Ready"), None)
        if condition is not None and getattr(status, "observed_generation", 0) >= generation:
            if condition.status == "True":
                return ChangeOutcome("done", f"{name} matches the request.")
            line = f"{name}: {condition.message or condition.reason}"
            if line != last_line:
                report(line)
                last_line = line
            if condition.status == "False" and condition.reason not in ("Pending", "Waiting"):
                why = Message.parse(condition.message)
                text = f"{name}: {why.sentence or condition.reason}"
                return ChangeOutcome("refused", text, (), condition.reason, why.next_step)
        if time.monotonic() - begun > (timeouts.end_s if last_line else timeouts.answer_s):
            what = "it has not finished: it continues in the background" if last_line else "no devices agent responds"
            return ChangeOutcome(
                "partial",
                f"{name}: the request is written, but {what}.",
                next_step=f"kubectl get {informer.kind.TYPE.plural}",
            )
        await asyncio.sleep(POLL_S)
