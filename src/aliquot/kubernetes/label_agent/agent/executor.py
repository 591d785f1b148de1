"""Execution of one step. Each step is idempotent, and safe if the agent is killed in it."""

from __future__ import annotations

from typing import assert_never

import msgspec

from aliquot.errors import AliquotError, StorageError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.logfmt import plain
from aliquot.hardware.systemd.errors import ServicesError
from aliquot.hardware.systemd.units import StoppedServices
from aliquot.kubernetes.client.cancellable_wait import WaitLimit
from aliquot.kubernetes.client.errors import ApiError, ForbiddenError
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.config_label import ConfigFailure, failure_of
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.reasons import DRIVER_HANGS
from aliquot.kubernetes.label_agent.agent import decision, steps
from aliquot.kubernetes.label_agent.agent.apply_step import PlanApplier
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation, RebootMark
from aliquot.kubernetes.label_agent.agent.observer import NO_RECORD
from aliquot.kubernetes.label_agent.agent.pod_waits import PodWaiter
from aliquot.kubernetes.label_agent.agent.step_context import StepContext

MAX_PAUSES = 5
"""Number of times that a pause is repeated before it counts as undone by another program."""


class StepExecutor(StepContext):
    """Executes steps. Pauses have the node's owner."""

    async def execute(self, step: steps.Step, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Execute a step and return the memory after it. Raises ApiError if the step must be retried later."""
        try:
            return await self._dispatch(step, observation, memory)
        except StorageError as error:
            return self.record_failure(failure_of(error, NO_RECORD), observation, memory)
        except ForbiddenError as error:
            if not isinstance(step, steps.PodWait):
                raise
            return self.record_failure(
                failure_of(error, "Forbidden"), observation, memory
            )  # paused operands must not wait for a permission

    async def _dispatch(self, step: steps.Step, observation: Observation, memory: AgentMemory) -> AgentMemory:
        match step:
            case steps.ReportStatus() | steps.Withdraw():
                await self.report(step.status, observation)
            case steps.Pause():
                return await self._pause(step, observation, memory)
            case steps.AwaitOperands() | steps.Evict():
                return await PodWaiter(self).wait(step, observation, memory)
            case steps.StopServices() | steps.StartServices() | steps.Reboot():
                return await self._execute_on_host(step, observation, memory)
            case steps.Apply():
                return await PlanApplier(self).apply(step, observation, memory)
            case steps.Publish():
                published = await self.publisher.publish(observation)
                return msgspec.structs.replace(memory, published=published, unpublished=self.publisher.problem)
            case steps.Restore():
                return await self._restore(step, observation, memory)
            case steps.Retry():
                log.info("the status was removed: the agent retries at once")
                return memory.after_retry_request()
            case steps.WaitForEvent():
                return await self._rest(step, observation, memory)
            case _:
                assert_never(step)
        return memory

    async def _rest(self, step: steps.WaitForEvent, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Release withheld devices before a wait, unless the wait is for holders."""
        if step.waiting:
            PodWaiter(self).withhold(observation, memory)
            return memory.while_waiting(observation)
        memory = msgspec.structs.replace(memory, lockouts=memory.lockouts + 1 if step.locked else 0)
        if observation.inventory is None:
            # Keep the offer while the driver only hangs: it may recover, and pods have these devices.
            if observation.failure is None or observation.failure.reason != DRIVER_HANGS:
                self.publisher.offering.withhold_all()
            return memory
        self.publisher.offering.release()
        await self.publisher.retry_refused(observation)
        return msgspec.structs.replace(memory, unpublished=self.publisher.problem, locked_by="")

    # -- pausing and restoring

    async def _pause(self, step: steps.Pause, observation: Observation, memory: AgentMemory) -> AgentMemory:
        pauses = (
            memory.pauses + 1
            if memory.paused_for == observation.attempt and observation.marks.pause_record is not None
            else 1
        )
        memory = msgspec.structs.replace(
            memory, operands_gone=False, services_stopped=False, paused_for=observation.attempt, pauses=pauses
        )
        if pauses > MAX_PAUSES:
            return self._fail_undone_pause(step, observation, msgspec.structs.replace(memory, pauses=0))
        plain("Shutting down all GPU clients in Kubernetes by disabling their component-specific nodeSelector labels")
        await self.write(
            step.status,
            observation,
            lambda marks: operands.pause(
                marks,
                step.operands,
                requested=observation.digest,
                now=observation.now,
                cordon=step.cordon,
                owner=self.node.owner,
            ),
        )
        return memory

    def _fail_undone_pause(self, step: steps.Pause, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Fail if another program keeps undoing the pause: the agent must neither fight nor change GPUs in use."""
        lost = operands.pause(observation.marks, step.operands, cordon=step.cordon, owner=self.node.owner)
        what = ", ".join(lost.labels) or "the cordon"
        text = f"another program keeps undoing the pause: {what}"
        who = f"kubectl get node {observation.node} -o yaml --show-managed-fields"
        return self.record_failure(ConfigFailure("PauseUndone", text, (), who), observation, memory)

    async def _restore(self, step: steps.Restore, observation: Observation, memory: AgentMemory) -> AgentMemory:
        done = step.status is not None and step.status.state == "success"
        if done:
            await self._validate(observation.managed.validators_after)
        plain(
            "Restarting all GPU clients previously shutdown in Kubernetes by reenabling their component-specific "
            "nodeSelector labels"
        )
        if step.status is None:
            await self.informer.change(self.restoration)
        else:
            await self.write(step.status, observation, self.restoration)
        if done and memory.last_change:
            plain(observation.managed.applied)
        return msgspec.structs.replace(memory, operands_gone=False, services_stopped=False, waiting_since=0.0)

    def restoration(self, marks: NodeMarks) -> NodePatch:
        """Return the patch that restores the operands that this agent may restore now."""
        return operands.restore(marks, self.node.owner, self.node.writer)

    async def _validate(self, apps: tuple[str, ...]) -> None:
        """Run validators again. A failure is only logged, as operands must not stay paused for it."""
        if not apps:
            return
        plain("Restarting validator pod to re-run all validations")
        bound = WaitLimit(30.0)
        try:
            await pods.delete_validators(self.informer.api, self.informer.name, apps, self.client_namespaces(), bound)
        except ApiError as error:
            log.warning("the validators cannot be restarted: %s", error.brief)

    # -- the host

    async def _execute_on_host(
        self, step: steps.HostStep, observation: Observation, memory: AgentMemory
    ) -> AgentMemory:
        match step:
            case steps.StopServices():
                return await self._stop_services(step, observation, memory)
            case steps.StartServices():
                return await self._start_services(observation, memory)
            case steps.Reboot():
                return await self._reboot(step, observation, memory)

    async def _stop_services(
        self, step: steps.StopServices, observation: Observation, memory: AgentMemory
    ) -> AgentMemory:
        plain("Shutting down all GPU clients on the host by stopping their systemd services")

        def note(stopped: StoppedServices) -> None:
            now = msgspec.structs.replace(self.state_file.value, stopped=stopped, stopped_by=self.node.owner)
            self.state_file.write(now)

        try:
            await self.host.stop(step.services, note, self.state_file.value.stopped)
        except AliquotError as error:
            return self.record_failure(failure_of(error, "HostClientsStay"), observation, memory)
        return msgspec.structs.replace(memory, services_stopped=True)

    async def _start_services(self, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Start the stopped services. Those that fail stay in the record for the next attempt."""
        plain("Restarting all GPU clients previously shutdown on the host by restarting their systemd services")
        stopped = self.state_file.value.stopped
        memory = msgspec.structs.replace(memory, services_stopped=False)
        if stopped is None:
            return memory
        try:
            await self.host.start(stopped)
        except AliquotError as error:
            remaining = stopped
            if isinstance(error, ServicesError):
                remaining = StoppedServices(tuple(unit for unit in stopped.units if unit.name in error.remaining))
            self.state_file.forget(msgspec.structs.replace(self.state_file.value, stopped=remaining))
            return self.record_failure(failure_of(error, decision.SERVICES_DOWN), observation, memory)
        self.state_file.forget(msgspec.structs.replace(self.state_file.value, stopped=None, stopped_by=None))
        return memory

    async def _reboot(self, step: steps.Reboot, observation: Observation, memory: AgentMemory) -> AgentMemory:
        self.state_file.write(
            msgspec.structs.replace(
                self.state_file.value, reboot=RebootMark(observation.digest, observation.boot, observation.clock)
            )
        )
        await self.report(step.status, observation)
        try:
            await self.host.reboot()
        except AliquotError as error:
            self.state_file.forget(msgspec.structs.replace(self.state_file.value, reboot=None))
            return self.record_failure(failure_of(error, "RebootRefused"), observation, memory)
        return msgspec.structs.replace(memory, rebooting=observation.boot)
