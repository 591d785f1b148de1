"""Look, decide, do one step, look again: until there is nothing to do, then until something happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError
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

BACKOFF = Backoff(first=0.5, longest=30.0, jitter=(0.8, 1.2))
EXIT_S = 10.0


class LabelAgentLoop:
    """The agent's heart. ``wake`` says that something happened; what, the next look finds out. ``error`` is why the
    last step could not be done, "" if it could. ``on_cycle`` is told of each look, and of the step that was decided.
    """

    def __init__(
        self,
        informer: NodeInformer,
        observer: Observer,
        executor: StepExecutor,
        metrics: LabelAgentMetrics,
        on_cycle: Callable[[Observation, steps.Step], None] = lambda *_: None,
    ) -> None:
        self.informer = informer
        self.observer = observer
        self.executor = executor
        self.metrics = metrics
        self.memory = AgentMemory()
        self.last_observation: Observation | None = None
        self.step: steps.Step = steps.WaitForEvent(0.0, "nothing was looked at yet")
        self.beat = time.monotonic()
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0
        self._on_cycle = on_cycle
        self.error = ""

    def wake(self) -> None:
        """Something happened. Ends a rest, a wait that was for an older wish, and one for a pause that is undone."""
        self._woken.set()
        try:
            if self.last_observation is not None and self._is_outdated(self.last_observation):
                self.executor.superseded.set()
        except Exception:  # noqa: BLE001 -- whoever wakes us is a watch, which must not end for a defect of ours
            log.exception("internal fault: report this, with the output of: aliquot version")
            self.executor.superseded.set()

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        return self._stopping

    def stop(self) -> None:
        """End after the step that is on."""
        self._stopping = True
        self._woken.set()
        self.executor.superseded.set()

    async def run(self) -> None:
        """Until ``stop``. What fails on the way is logged and tried again, later each time."""
        while not self._stopping:
            self.beat = time.monotonic()
            self._woken.clear()
            try:
                pause = await self.cycle()
                self._failures, self.error = 0, ""
            except NotReadYetError:
                pause = BACKOFF.longest  # the watch wakes us
            except AliquotError as error:
                pause = self._back_off(error)
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave the node paused
                pause = self._record_defect(error)
            if pause and not self._stopping:
                await self._rest(pause)
        await self._restore_at_exit()

    async def cycle(self) -> float:
        """One look and one step; how long to rest after it, 0 to go on at once."""
        self.executor.superseded.clear()
        changes = self.informer.changes
        observation = self.last_observation = await self.observer.observe(self.memory)
        self.memory = self.memory.after_observation(observation)
        self.metrics.record_observation(observation)
        step = self.step = decide(observation, self.memory)
        self._on_cycle(observation, step)
        if self._stopping or (self.informer.changes != changes and self._is_outdated(observation)):
            return 0.0  # it happened while we looked
        log.debug("%s", step)
        self.beat = time.monotonic() + _max_duration_s(step, observation)
        self.memory = await self.executor.execute(step, observation, self.memory)
        return step.seconds if isinstance(step, steps.WaitForEvent) else 0.0

    async def _rest(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event does.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _back_off(self, error: AliquotError) -> float:
        """The API server or the disk is in the way of a step, not the step itself."""
        self._failures += 1
        requested_s = error.retry_after_s if isinstance(error, ApiError) else None
        self.error = f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}"
        log.warning("%s", self.error)
        return BACKOFF.pause(self._failures, requested_s or 0.0)

    def _record_defect(self, error: Exception) -> float:
        """Something that should not happen. It counts as a failed attempt, so that what is paused is given back."""
        log.exception("internal fault: report this, with the output of: aliquot version")
        self._failures += 1
        if self.last_observation is not None:
            self.memory = self.executor.record_failure(internal_failure(error), self.last_observation, self.memory)
        return BACKOFF.pause(self._failures)

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
