"""The step that reaches GPUs: carrying out the plan."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.actions import Reset
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError, DriverHangsError, InUseError, LockedError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.logfmt import plain
from aliquot.kubernetes.gpu.config_label import ConfigFailure, failure_of
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import status_builder, steps
from aliquot.kubernetes.label_agent.agent.affected_devices import devices_to_destroy
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.progress import Progress
from aliquot.kubernetes.label_agent.agent.step_context import StepContext
from aliquot.kubernetes.node_agent import messages as phrases
from aliquot.kubernetes.node_agent.hang_reporter import HANG_POLL_S, HangReporter
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, uses_of_devices

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome

ALLOCATION_SETTLE_S = 3.0
"""How long kubelet may take from Allocate's answer until it names the pod."""


class PlanApplier:
    """The part of an actor that changes something for others."""

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def apply(self, step: steps.Apply, observation: Observation, memory: AgentMemory) -> AgentMemory:
        plain("Applying the selected MIG config to the node")
        recent = self._context.publisher.offering.withhold(devices_to_destroy(step.plan, observation))
        if recent:
            log.info("%d devices were given to pods just now: waiting for kubelet to name them", len(recent))
            await asyncio.sleep(ALLOCATION_SETTLE_S)
        return await self._apply_now(step, observation, memory)

    async def _apply_now(self, step: steps.Apply, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Kubelet is asked once more: what it gave away since the look is not taken."""
        try:
            newly_given = await self._newly_given_device(step.plan, observation)
        except AliquotError as error:
            log.warning("%s: looking again", error.brief)
            return memory
        if newly_given:
            log.info("pod %s/%s was given a device meanwhile: looking again", newly_given.namespace, newly_given.pod)
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
            if error.code == "MOVED":
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
        deed = phrases.result(step.plan)
        word = "healed" if step.status.reason == status_builder.HEALING else "applied"
        text = f"{observation.label!r} is {word}: {deed} in {seconds:.1f} s, verified by a fresh read"
        if outcome.status == "reboot":
            text = f"{observation.label!r} waits for a reboot: {deed}"
        return msgspec.structs.replace(
            memory, last_change=text, last_change_for=observation.digest, failed=None, failures=0, waiting_since=0.0
        )

    async def _apply_with_hang_reports(
        self, step: steps.Apply, observation: Observation, progress: Progress
    ) -> ApplyOutcome:
        """Apply the plan, and report a driver call that hangs meanwhile: nothing else looks at the node before the end
        of this step. What is paused stays paused, since the change goes on once the call returns.
        """
        written = step.status

        async def report(hang: DriverHangsError | None) -> None:
            nonlocal written
            status = _hang_status(observation, hang) if hang is not None else step.status
            if status != written:
                await self._context.report(status, observation)
                written = status

        hangs = HangReporter(lambda: self._context.hardware.hang, report)
        applying = asyncio.create_task(self._context.hardware.apply(step.plan, progress.report))
        try:
            while not (await asyncio.wait((applying,), timeout=HANG_POLL_S))[0]:
                await hangs.poll()
        finally:
            applying.cancel()
        return applying.result()

    def _failed_apply(
        self,
        status: str,
        error: AliquotError,
        sentences: tuple[str, ...],
        observation: Observation,
        memory: AgentMemory,
    ) -> AgentMemory:
        rollback_text = "not all could be undone" if status == "partial" else "the former state is back"
        resets = observation.plan is not None and any(isinstance(a, Reset) for a in observation.plan.actions)
        if isinstance(error, InUseError) and resets and observation.settings.with_reboot:
            log.info("%s; %s: going for a reboot instead of a reset", error.brief, rollback_text)
            return msgspec.structs.replace(memory, no_reset=observation.digest)
        failure = ConfigFailure(
            "ApplyFailed", f"{error.brief}; {rollback_text}", (*error.details, *sentences), error.next_step or ""
        )
        return self._context.record_failure(failure, observation, memory)

    async def _newly_given_device(self, plan: Plan, observation: Observation) -> PodDeviceUse | None:
        if self._context.publisher.uses is None or observation.holder_policy.policy == "force":
            return None
        assert observation.inventory is not None
        found = uses_of_devices(
            devices_to_destroy(plan, observation), await self._context.publisher.uses(), observation.inventory
        )
        return next(iter(await self._context.informer.living_uses(found) if found else ()), None)


def _hang_status(observation: Observation, hang: DriverHangsError) -> AgentStatus:
    """The node's status while a call of the change hangs."""
    return status_builder.status(
        observation, "failed", phrases.DRIVER_HANGS, hang.brief, next_step=hang.next_step or "", details=hang.details
    )
