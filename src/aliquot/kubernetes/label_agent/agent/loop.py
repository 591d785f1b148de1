"""Loop of the label agent: observe, decide, execute one step. With nothing to do, it waits for a change."""

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
    """The cycles of ``loop``. ``on_cycle`` is called with each observation and the step decided for it."""

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
        self.step: steps.Step = steps.WaitForEvent(0.0, "nothing is observed yet")
        self._on_cycle = on_cycle

    def _end_outdated_wait(self) -> None:
        """End the current wait at the stop, or if it is for an older request or for a pause that was undone."""
        try:
            if self.loop.stopping.is_set() or (
                self.last_observation is not None and self._is_outdated(self.last_observation)
            ):
                self.executor.superseded.set()
        except Exception:  # noqa: BLE001 -- the caller is a watch, which a defect of Aliquot must not end
            log.exception(INTERNAL_FAULT)
            self.executor.superseded.set()

    async def run(self) -> None:
        """Run until the loop is stopped, then restore what is paused."""
        await self.loop.run(self.cycle, self._record_defect)
        await self._restore_at_exit()

    async def cycle(self) -> float:
        """Observe, execute one step, and return the seconds to wait after it; 0 to continue at once."""
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
            return 0.0  # it changed during the observation
        log.debug("%s", step)
        self.loop.beat = time.monotonic() + _max_duration_s(step, observation)
        self.memory = await self.executor.execute(step, observation, self.memory)
        return step.seconds if isinstance(step, steps.WaitForEvent) else 0.0

    def _record_defect(self, error: Exception) -> None:
        """Record an unexpected exception as a failed attempt, so that what is paused is restored."""
        if self.last_observation is not None:
            self.memory = self.executor.record_failure(internal_failure(error), self.last_observation, self.memory)

    def _is_outdated(self, observation: Observation) -> bool:
        """Report whether waits that are based on this observation are no longer useful."""
        return (
            self._request_changed(observation)
            or self._pause_was_undone(observation)
            or self._settings_changed(observation)
        )

    def _request_changed(self, observation: Observation) -> bool:
        """Report whether the request differs from the observed one."""
        if self.informer.node is None:
            return False
        now = self.informer.marks
        return (
            observation.managed.requested(now.labels, observation.settings) != observation.label
            or self.observer.digest_of(observation) != observation.digest
        )

    def _settings_changed(self, observation: Observation) -> bool:
        """Report whether the agent waits for pods under settings that no longer apply."""
        if self.informer.node is None or not isinstance(self.step, steps.PodWait):
            return False
        try:
            settings, _, _ = self.observer.settings()
        except NotReadYetError:
            return False
        if not settings.manage or isinstance(self.step, steps.AwaitOperands):
            return not settings.manage
        requested = self.informer.marks.annotations.get(names.HOLDERS_ANNOTATION)
        return settings.holder_policy(observation.label or "", requested) != observation.holder_policy

    def _pause_was_undone(self, observation: Observation) -> bool:
        """Report whether the agent waits for operands whose pause was undone, so that their pods would never go."""
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
        """Restore what is paused before the process ends, if the API server answers.

        If it does not, or while another process changes the GPUs, the next agent restores it from the record on the
        node.
        """
        if self.last_observation is None:
            return
        marks = self.informer.marks if self.informer.node is not None else operands.NodeMarks()
        now = msgspec.structs.replace(
            self.last_observation, marks=marks, durable=self.executor.state_file.value, writer=self.executor.node.writer
        )
        if now.held_back:
            log.warning("paused GPU clients stay paused until the agent runs again: %s changes the GPUs", now.writer)
        # Without a record of Aliquot, a pause is another manager's.
        is_ours = now.settings.manage or marks.pause_record is not None
        if not (now.owes_services or (is_ours and now.restoration)):
            return
        try:
            async with asyncio.timeout(EXIT_S):
                if now.owes_services:
                    self.memory = await self.executor.execute(steps.StartServices(), self.last_observation, self.memory)
                await self.informer.change(self.executor.restoration)
        except (AliquotError, TimeoutError) as error:
            log.warning("paused GPU clients stay paused until the agent runs again: %s", error)


def _max_duration_s(step: steps.Step, observation: Observation) -> float:
    """Return the seconds that a step may last by its own timeouts, in which the liveness probe must not fail."""
    match step:
        case steps.WaitForEvent():
            return step.seconds
        case steps.AwaitOperands():
            return float(observation.settings.operands_s)
        case steps.Evict():
            return observation.holder_policy.timeout_s + FORCE_WAIT_S
        case _:
            return 0.0
