"""What every step of the agent works with: the node, its GPUs, and the one way to report and to fail."""

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
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation, boot_clock
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker

if TYPE_CHECKING:
    from aliquot.kubernetes.label_agent.agent.host_services import HostServices
    from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
    from aliquot.kubernetes.label_agent.agent.publisher import Publisher

COUNTED = ("ApplyFailed", "ApplyRefused")
"""Reasons that figures know better, by the error's own code."""


class StepContext:
    """``owner`` is this agent, as it signs what it pauses. ``change_lock`` is the path of the node's change lock.
    ``superseded`` is set by the loop when there is a newer request.
    """

    def __init__(
        self,
        informer: NodeInformer,
        hardware: GpuWorker,
        state_file: AgentStateFile,
        publisher: Publisher,
        host: HostServices,
        metrics: LabelAgentMetrics,
        owner: PauseOwner,
        change_lock: str = "",
    ) -> None:
        self.informer = informer
        self.hardware = hardware
        self.state_file = state_file
        self.publisher = publisher
        self.host = host
        self.metrics = metrics
        self.owner = owner
        self.change_lock = change_lock
        self.superseded = asyncio.Event()

    async def report(self, status: AgentStatus, observation: Observation) -> None:
        """Write a status to the node. Raises ApiError."""
        await self.write(status, observation, lambda marks: NodePatch())

    async def write(
        self, status: AgentStatus, observation: Observation, extra_patch: Callable[[NodeMarks], NodePatch]
    ) -> None:
        """State label, annotations and ``extra_patch`` in one patch; an event and a line in the log if it is news.
        Nothing where somebody has asked anew since the look: this would be taken for the answer.
        """
        outdated = False
        status_patch = NodePatch(
            {names.STATE_LABEL: status.state or None},
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
            plain(f"Changing the '{names.STATE_LABEL}' node label to '{status.state}'")
        if not status.differs_from(observation.status) and observation.state == status.state:
            return
        log.log(30 if status.state == "failed" else 20, "%s", status.sentence)
        for line in status.details:
            log.info("%s", line)
        self.metrics.set_state(status.state)
        await self.informer.event(status, observation.now)

    def client_namespaces(self) -> tuple[str, ...]:
        return (self.publisher.setup.clients_namespace or self.informer.namespace,)

    def record_failure(self, failure: ConfigFailure, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """The attempt failed: said, counted, and not made again before its time."""
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
