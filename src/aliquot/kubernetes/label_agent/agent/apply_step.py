"""The step that applies a plan to the GPUs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.actions import Reset
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, DriverHangsError, InUseError, LockedError, StalePlanError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.logfmt import plain
from aliquot.kubernetes.gpu.change_report import PARTIAL, ROLLBACK_TEXT, UNDONE, ChangeReport, Rollback
from aliquot.kubernetes.gpu.config_label import ConfigFailure, failure_of
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.reasons import APPLY_FAILED, DRIVER_HANGS
from aliquot.kubernetes.label_agent.agent import status_builder, steps
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.progress import Progress
from aliquot.kubernetes.label_agent.agent.step_context import StepContext
from aliquot.kubernetes.node_agent import messages as phrases
from aliquot.kubernetes.node_agent.hang_reporter import HANG_POLL_S, HangReporter
from aliquot.kubernetes.node_agent.held_devices import devices_to_destroy
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, uses_of_devices

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.core.engine.ports import ApplyStatus

ALLOCATION_SETTLE_S = 3.0
"""Seconds that kubelet may take from the response of Allocate until it lists the pod."""


class PlanApplier:
    """Applies plans on behalf of the step executor."""

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def apply(self, step: steps.Apply, observation: Observation, memory: AgentMemory) -> AgentMemory:
        plain(observation.managed.applying)
        assert observation.inventory is not None
        recent = self._context.publisher.offering.withhold(devices_to_destroy(step.plan, observation.inventory))
        if recent:
            log.info("%d devices were just allocated: waiting for kubelet to list their pods", len(recent))
            await asyncio.sleep(ALLOCATION_SETTLE_S)
        return await self._apply_now(step, observation, memory)

    async def _apply_now(self, step: steps.Apply, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Apply the plan, unless kubelet has allocated one of its devices since the observation."""
        try:
            newly_given = await self._newly_given_device(step.plan, observation)
        except AliquotError as error:
            log.warning("%s: the agent plans again", error.brief)
            return memory
        if newly_given:
            log.info("pod %s/%s got a device meanwhile: the agent plans again", newly_given.namespace, newly_given.pod)
            return memory
        started = time.monotonic()
        changes = self._context.metrics.changes
        if memory.failures and memory.attempt == observation.attempt:
            changes.count_retry()
        progress = Progress(self._context.informer, step.status, len(step.plan.actions))
        try:
            with changes.time_change():
                outcome = await self._apply_with_hang_reports(step, observation, progress)
        except AliquotError as error:
            if isinstance(error, StalePlanError):
                return memory
            if isinstance(error, LockedError):
                return msgspec.structs.replace(memory, locked_by=error.holder or "another process")
            return self._context.record_failure(failure_of(error, "ApplyRefused"), observation, memory)
        finally:
            await progress.close()
        seconds = time.monotonic() - started
        self._context.metrics.record_apply(outcome, seconds)
        if outcome.error is not None:
            return self._failed_apply(outcome.status, outcome.error, outcome.sentences, observation, memory)
        text, report = _last_change(step, outcome, seconds, observation.label or "")
        return msgspec.structs.replace(
            memory,
            last_change=text,
            last_report=report,
            last_change_for=observation.digest,
            failed=None,
            failures=0,
            waiting_since=0.0,
        )

    async def _apply_with_hang_reports(
        self, step: steps.Apply, observation: Observation, progress: Progress
    ) -> ApplyOutcome:
        """Apply the plan, and report a driver call that hangs, as nothing else runs before the end of this step.

        Paused operands stay paused, because the change continues once the call returns.
        """
        written = step.status

        async def report(hang: DriverHangsError | None) -> None:
            nonlocal written
            status = _hang_status(observation, hang) if hang is not None else step.status
            if status != written:
                await self._context.report(status, observation)
                written = status

        hangs = HangReporter(report)
        applying = asyncio.create_task(self._context.hardware.apply(step.plan, progress.report))
        try:
            while not (await asyncio.wait((applying,), timeout=HANG_POLL_S))[0]:
                await hangs.poll()
        finally:
            applying.cancel()
        return applying.result()

    def _failed_apply(
        self,
        status: ApplyStatus,
        error: AliquotError,
        sentences: tuple[str, ...],
        observation: Observation,
        memory: AgentMemory,
    ) -> AgentMemory:
        ended: Rollback = PARTIAL if status == "partial" else UNDONE
        rollback_text = ROLLBACK_TEXT[ended]
        resets = observation.plan is not None and any(isinstance(a, Reset) for a in observation.plan.actions)
        if isinstance(error, InUseError) and resets and observation.settings.with_reboot:
            log.info("%s; %s: the agent reboots the node instead of a reset", error.brief, rollback_text)
            return msgspec.structs.replace(memory, no_reset=observation.digest)
        failure = ConfigFailure(
            APPLY_FAILED,
            f"{error.brief}; {rollback_text}",
            (*error.details, *sentences),
            error.next_step or "",
            ChangeReport(outcome=ended),
        )
        return self._context.record_failure(failure, observation, memory)

    async def _newly_given_device(self, plan: Plan, observation: Observation) -> PodDeviceUse | None:
        assert observation.inventory is not None
        ending = devices_to_destroy(plan, observation.inventory)
        if not ending or self._context.publisher.uses is None or observation.holder_policy.policy == "force":
            return None
        found = uses_of_devices(ending, await self._context.publisher.uses(), observation.inventory)
        return next(iter(await self._context.informer.living_uses(found) if found else ()), None)


def _last_change(step: steps.Apply, outcome: ApplyOutcome, seconds: float, label: str) -> tuple[str, ChangeReport]:
    """Return the sentence and the report of a change that succeeded."""
    result_text = phrases.result(step.plan)
    if outcome.status == "reboot":
        return f"{label!r} waits for a reboot: {result_text}", ChangeReport(label)
    word = "healed" if step.status.reason == status_builder.HEALING else "applied"
    text = f"{label!r} is {word}: {result_text} in {seconds:.1f} s, verified by a fresh read"
    return text, ChangeReport(label, round(seconds, 1))


def _hang_status(observation: Observation, hang: DriverHangsError) -> AgentStatus:
    """Return the node's status while a driver call of the change hangs."""
    return status_builder.status(
        observation, "failed", DRIVER_HANGS, hang.brief, next_step=hang.next_step or "", details=hang.details
    )
