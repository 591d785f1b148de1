"""Context of the agent's steps: the node, its GPUs, and how to report a status or a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.logfmt import plain
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch, merge_patches
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.reasons import APPLY_FAILED, FailureReason
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation, boot_clock

if TYPE_CHECKING:
    from aliquot.kubernetes.label_agent.agent.host_services import HostServices
    from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
    from aliquot.kubernetes.label_agent.agent.publisher import Publisher

COUNTED: tuple[FailureReason, ...] = (APPLY_FAILED, "ApplyRefused")
"""Reasons that the metrics already count by error code."""


class StepContext:
    """Context of steps. The loop sets ``superseded`` if there is a newer request."""

    def __init__(self, node: AgentNode, publisher: Publisher, host: HostServices, metrics: LabelAgentMetrics) -> None:
        self.node = node
        self.informer = node.informer
        self.hardware = node.hardware
        self.state_file = node.state_file
        self.publisher = publisher
        self.host = host
        self.metrics = metrics
        self.superseded = asyncio.Event()

    async def report(self, status: AgentStatus, observation: Observation) -> None:
        """Write a status to the node. Raises ApiError."""
        await self.write(status, observation, lambda marks: NodePatch())

    async def write(
        self, status: AgentStatus, observation: Observation, extra_patch: Callable[[NodeMarks], NodePatch]
    ) -> None:
        """Write state label, annotations and ``extra_patch`` in one patch; also an event and a log line if it is new.

        Writes nothing if a user has sent a new request since the observation, as this would look like its result.
        """
        outdated = False
        status_patch = NodePatch(
            {observation.managed.state: status.state or None},
            {names.STATUS_ANNOTATION: status.document(), names.MESSAGE_ANNOTATION: status.sentence},
        )

        def change(marks: NodeMarks) -> NodePatch:
            nonlocal outdated
            outdated = observation.was_requested_again(marks)
            return NodePatch() if outdated else merge_patches(extra_patch(marks), status_patch)

        await self.informer.change(change)
        if outdated:
            return
        if status.state == "success" and self.state_file.value.reboot is not None:
            self.state_file.forget(msgspec.structs.replace(self.state_file.value, reboot=None))
        if observation.state != status.state and status.state:
            plain(f"Changing the '{observation.managed.state}' node label to '{status.state}'")
        if not status.differs_from(observation.status) and observation.state == status.state:
            return
        log.log(30 if status.state == "failed" else 20, "%s", status.sentence)
        for line in status.details:
            log.info("%s", line)
        self.metrics.set_state(status.state)
        await self.informer.event(status)

    def client_namespaces(self) -> tuple[str, ...]:
        return (self.publisher.setup.clients_namespace or self.informer.namespace,)

    def record_failure(self, failure: ConfigFailure, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Log and count a failed attempt, and return the memory with the time of the next attempt."""
        failures = memory.failures + 1 if memory.attempt == observation.attempt else 1
        pause = Backoff(observation.settings.retry_first_s, observation.settings.retry_longest_s).pause(failures)
        log.error("%s: next attempt in %d s", failure.reason, pause)
        if failure.reason not in COUNTED:
            self.metrics.changes.count_failure(failure.reason)
        return msgspec.structs.replace(
            memory,
            attempt=observation.attempt,
            failed=failure,
            failures=failures,
            retry_at=boot_clock() + pause,
            waiting_since=0.0,
        )
