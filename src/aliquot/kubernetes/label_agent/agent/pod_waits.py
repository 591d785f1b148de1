"""Steps that wait for the pods of paused operands and for holders. The node's status names the pods."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.cancellable_wait import WaitEnd, WaitLimit
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu import eviction as drain
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.gpu.gpu_operands import Operand
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.label_agent.agent import steps
from aliquot.kubernetes.label_agent.agent.affected_devices import devices_to_withhold
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.label_agent.agent.step_context import StepContext

EVERY_S = 2.0
"""Seconds between two reports of the awaited pods."""


class PodWaiter:
    """Waits for pods on behalf of the step executor."""

    def __init__(self, context: StepContext) -> None:
        self._context = context

    async def wait(self, step: steps.PodWait, observation: Observation, memory: AgentMemory) -> AgentMemory:
        """Wait for the pods of a step, and return the memory after it."""
        match step:
            case steps.AwaitOperands():
                return await self._wait_for_operands(step, observation, memory)
            case steps.Evict():
                return await self._wait_for_holders(step, observation, memory)

    async def _wait_for_operands(
        self, step: steps.AwaitOperands, observation: Observation, memory: AgentMemory
    ) -> AgentMemory:
        informer = self._context.informer
        names = ", ".join(each.name for each in step.operands)
        log.info("waiting for GPU clients to shut down: %s", names)
        match = pods.operand_matcher(_paused_operands(observation, step.operands), self._context.client_namespaces())
        bound = WaitLimit(float(observation.settings.operands_s), superseded=self._context.superseded)
        report = _WaitReport(self._context, step.status, observation)

        async def remain(found: Sequence[Pod]) -> None:
            await report.write(f"waiting for GPU clients to end: {pods.pod_list_text(found)}")

        waited = await pods.await_gone(informer.api, informer.name, match, bound, remain)
        if waited.end is WaitEnd.TIMED_OUT:
            text = f"GPU clients did not shut down within {observation.settings.operands_s} s: {waited.sentence}"
            list_command = f"kubectl get pods -A --field-selector spec.nodeName={informer.name}"
            return self._context.record_failure(
                ConfigFailure("ClientsStay", text, (), list_command), observation, memory
            )
        if waited.gone:
            validators, where = observation.managed.validators_before, self._context.client_namespaces()
            if validators:
                await pods.delete_validators(informer.api, informer.name, validators, where, WaitLimit(30.0))
            return msgspec.structs.replace(memory, operands_gone=True)
        return memory

    def withhold(self, observation: Observation, memory: AgentMemory) -> None:
        """Withhold the devices of this wait for holders, and release those of an earlier wait."""
        if memory.waiting_for != observation.patience:
            self._context.publisher.offering.release()
        self._context.publisher.offering.withhold(devices_to_withhold(observation, memory))

    async def _wait_for_holders(self, step: steps.Evict, observation: Observation, memory: AgentMemory) -> AgentMemory:
        assert observation.plan is not None
        informer = self._context.informer
        if not await self._may_evict(step):
            return self._context.record_failure(
                _eviction_off(step, observation.holder_policy.policy), observation, memory
            )
        log.info("evicting %d pods: %s", len(step.pods), ", ".join("/".join(each) for each in step.pods))
        self.withhold(observation, memory)
        memory = memory.while_waiting(observation)
        bound = WaitLimit(float(observation.holder_policy.timeout_s), superseded=self._context.superseded)
        report = _WaitReport(self._context, step.status, observation)

        async def remain(found: Sequence[drain.RemainingPod]) -> None:
            await report.write(f"waiting for {'; '.join(map(str, found))}")

        evicted = await drain.evict(
            informer.api, step.pods, bound, node=informer.name, force=step.force, on_remaining=remain
        )
        if evicted.remaining and evicted.end is not WaitEnd.SUPERSEDED:
            text = f"{len(evicted.remaining)} of {len(step.pods)} pods did not leave: {evicted.remaining[0]}"
            return self._context.record_failure(
                ConfigFailure("NotDrained", text, tuple(map(str, evicted.remaining[1:]))), observation, memory
            )
        # Kubelet lags behind the API server, and older versions list ended pods: avoid a hot loop.
        await WaitLimit(bound.poll_s, superseded=bound.superseded).run(asyncio.sleep(bound.poll_s))
        return memory

    async def _may_evict(self, step: steps.Evict) -> bool:
        """Report whether RBAC allows this agent to evict these pods. Raises ApiError."""
        api = self._context.informer.api
        namespaces = sorted({namespace for namespace, _ in step.pods})
        return all([await api.can_i("create", "pods/eviction", each) for each in namespaces])


class _WaitReport:
    """Adds the awaited pods to a status when they change, at most every ``EVERY_S`` seconds."""

    def __init__(self, context: StepContext, status: AgentStatus, observation: Observation) -> None:
        self._context, self._status, self._observation = context, status, observation
        self._written = ""
        self._written_at = float("-inf")

    async def write(self, sentence: str) -> None:
        """Write the status with a sentence. A failure does not end the wait."""
        if sentence == self._written or time.monotonic() - self._written_at < EVERY_S:
            return
        self._written_at = time.monotonic()
        status = msgspec.structs.replace(self._status, message=f"{self._status.message}; {sentence}")
        try:
            await self._context.report(status, self._observation)
        except ApiError as error:
            log.debug("not reported: %s: %s", sentence, error.brief)
        else:
            self._written = sentence


def _paused_operands(observation: Observation, concerned: tuple[Operand, ...]) -> list[Operand]:
    """Return the operands that the pause removed: the agent does not wait for an operand that is off."""
    record = observation.marks.pause_record
    taken = record.previous_labels if record is not None else {}
    return [operand for operand in concerned if operand.label in taken]


def _eviction_off(step: steps.Evict, policy: str) -> ConfigFailure:
    """Build the failure if the agent may not evict: the manifests grant this permission only on request."""
    names = ", ".join("/".join(each) for each in step.pods)
    return ConfigFailure(
        "EvictionOff",
        f"policy {policy!r} evicts pods, but the agent has no permission to evict {names}: it is off by default",
        (),
        "kubectl apply -f deploy/kubernetes/optional/evictions.yaml   # with Helm: "
        "helm upgrade aliquot deploy/helm/aliquot --reuse-values --set migManager.evictions=true",
    )
