"""Look, decide, do one step, look again: until there is nothing to do, then until something happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import internal_failure
from aliquot.kubernetes.gpu.eviction import FORCE_WAIT_S
from aliquot.kubernetes.label_agent.agent import steps
from aliquot.kubernetes.label_agent.agent.decision import decide
from aliquot.kubernetes.label_agent.agent.executor import StepExecutor
from aliquot.kubernetes.label_agent.agent.metrics import LabelAgentMetrics
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer, NotReadYetError
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer
from aliquot.kubernetes.node_agent.agent_loop import INTERNAL_FAULT, UNREAD_S, AgentLoop

EXIT_S = 10.0


class LabelAgentLoop:
    """What the rounds of ``loop`` do. ``on_cycle`` is told of each look, and of the step that was decided."""

    def __init__(
        self,
        loop: AgentLoop,
        informer: NodeInformer,
        observer: Observer,
        executor: StepExecutor,
        metrics: LabelAgentMetrics,
        on_cycle: Callable[[Observation, steps.Step], None] = lambda *_: None,
    ) -> None:
        loop.on_wake = self._end_outdated_wait
        self.loop = loop
        self.informer = informer
        self.observer = observer
        self.executor = executor
        self.metrics = metrics
        self.memory = AgentMemory()
        self.last_observation: Observation | None = None
        self.step: steps.Step = steps.WaitForEvent(0.0, "nothing was looked at yet")
        self._on_cycle = on_cycle

    def _end_outdated_wait(self) -> None:
        """A wait that was for an older wish ends, one for a pause that is undone, and at the stop any."""
        try:
            if self.loop.stopping.is_set() or (
                self.last_observation is not None and self._is_outdated(self.last_observation)
            ):
                self.executor.superseded.set()
        except Exception:  # noqa: BLE001 -- whoever wakes us is a watch, which must not end for a defect of ours
            log.exception(INTERNAL_FAULT)
            self.executor.superseded.set()

    async def run(self) -> None:
        """Run until the loop is stopped; what is paused is then given back."""
        await self.loop.run(self.cycle, self._record_defect)
        await self._restore_at_exit()

    async def cycle(self) -> float:
        """One look and one step; how long to rest after it, 0 to go on at once."""
        try:
            pause = await self._observe_and_execute()
        except NotReadYetError:
            return UNREAD_S
        self.loop.error = ""
        return pause

    async def _observe_and_execute(self) -> float:
        self.executor.superseded.clear()
        changes = self.informer.changes
        observation = self.last_observation = await self.observer.observe(self.memory)
        self.memory = self.memory.after_observation(observation)
        self.metrics.record_observation(observation)
        step = self.step = decide(observation, self.memory)
        self._on_cycle(observation, step)
        if self.loop.stopping.is_set() or (self.informer.changes != changes and self._is_outdated(observation)):
            return 0.0  # it happened while we looked
        log.debug("%s", step)
        self.loop.beat = time.monotonic() + _max_duration_s(step, observation)
        self.memory = await self.executor.execute(step, observation, self.memory)
        return step.seconds if isinstance(step, steps.WaitForEvent) else 0.0

    def _record_defect(self, error: Exception) -> None:
        """Something that should not happen. It counts as a failed attempt, so that what is paused is given back."""
        if self.last_observation is not None:
            self.memory = self.executor.record_failure(internal_failure(error), self.last_observation, self.memory)

    def _is_outdated(self, observation: Observation) -> bool:
        """True if what the last look saw is no longer worth waiting for."""
        return (
            self._request_changed(observation)
            or self._pause_was_undone(observation)
            or self._policy_changed(observation)
        )

    def _request_changed(self, observation: Observation) -> bool:
        """True if the wish is another one than that of the last look."""
        if self.informer.node is None:
            return False
        now = self.informer.marks
        return (
            now.labels.get(names.CONFIG_LABEL) != observation.label
            or self.observer.digest_of(observation) != observation.digest
        )

    def _policy_changed(self, observation: Observation) -> bool:
        """True if holders are waited for under a policy that holds no longer."""
        if self.informer.node is None or not isinstance(self.step, steps.Evict):
            return False
        try:
            settings, _, _ = self.observer.settings()
        except NotReadYetError:
            return False
        requested = self.informer.marks.annotations.get(names.HOLDERS_ANNOTATION)
        return settings.holder_policy(observation.label or "", requested) != observation.holder_policy

    def _pause_was_undone(self, observation: Observation) -> bool:
        """True if operands are awaited that somebody takes out of the pause: they would never go."""
        if self.informer.node is None or not isinstance(self.step, steps.AwaitOperands):
            return False
        patch = operands.pause(
            self.informer.marks,
            self.step.operands,
            requested=observation.digest,
            cordon=observation.holder_policy.cordon,
            owner=observation.owner,
        )
        return bool(patch)

    async def _restore_at_exit(self) -> None:
        """A last courtesy before the process ends: what is paused is given back, if the server answers. If it does
        not, and while another process changes the GPUs, the record is on the node, and the next agent does it.
        """
        if self.last_observation is None:
            return
        marks = self.informer.marks if self.informer.node is not None else operands.NodeMarks()
        now = msgspec.structs.replace(
            self.last_observation, marks=marks, durable=self.executor.state_file.value, writer=self.executor.writer
        )
        if now.held_back:
            log.warning("paused GPU clients stay paused until the agent is back: %s changes the GPUs", now.writer)
        # Without a record of ours a pause is another manager's, where there is one.
        is_ours = now.settings.manage or marks.pause_record is not None
        if not (now.owes_services or (is_ours and now.restoration)):
            return
        try:
            async with asyncio.timeout(EXIT_S):
                if now.owes_services:
                    self.memory = await self.executor.execute(steps.StartServices(), self.last_observation, self.memory)
                await self.informer.change(self.executor.restoration)
        except (AliquotError, TimeoutError) as error:
            log.warning("paused GPU clients stay paused until the agent is back: %s", error)


def _max_duration_s(step: steps.Step, observation: Observation) -> float:
    """How long a step may last by its own bounds, in seconds: silence before that is no sign of death."""
    match step:
        case steps.WaitForEvent():
            return step.seconds
        case steps.AwaitOperands():
            return float(observation.settings.operands_s)
        case steps.Evict():
            return observation.holder_policy.timeout_s + FORCE_WAIT_S
        case _:
            return 0.0
