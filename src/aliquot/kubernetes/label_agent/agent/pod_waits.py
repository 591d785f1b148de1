"""The steps that wait for pods: paused operands that end, and holders that leave. The node says whom they wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.cancellable_wait import Bound, End
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu import eviction as drain
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.gpu.gpu_operands import Operand
from aliquot.kubernetes.gpu.node_status import Status
from aliquot.kubernetes.label_agent.agent import steps
from aliquot.kubernetes.label_agent.agent.affected_devices import to_withhold
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation

if TYPE_CHECKING:
    from aliquot.kubernetes.label_agent.agent.executor import Actor

EVERY_S = 2.0
"""Between two reports of whom a step waits for."""


class Waits:
    """The part of an actor that waits for pods."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def operands(self, step: steps.AwaitOperands, o: Observation, m: Memory) -> Memory:
        corner = self._actor.corner
        names = ", ".join(each.name for each in step.operands)
        log.info("waiting for GPU clients to shut down: %s", names)
        match = pods.of_operands(_paused(o, step.operands), self._actor.namespaces())
        bound = Bound(float(o.settings.operands_s), superseded=self._actor.superseded)
        report = _Report(self._actor, step.status, o)

        async def remain(found: Sequence[Pod]) -> None:
            await report.write(f"waiting for GPU clients to end: {pods.listed(found)}")

        waited = await pods.await_gone(corner.api, corner.name, match, bound, remain)
        if waited.end is End.LATE:
            text = f"GPU clients did not shut down within {o.settings.operands_s} s: {waited.sentence}"
            look = f"kubectl get pods -A --field-selector spec.nodeName={corner.name}"
            return self._actor.failed(Trouble("ClientsStay", text, (), look), o, m)
        if waited.gone:
            validators, where = pods.VALIDATORS_BEFORE, self._actor.namespaces()
            await pods.delete_validators(corner.api, corner.name, validators, where, Bound(30.0))
            return msgspec.structs.replace(m, cleared=True)
        return m

    async def withhold(self, o: Observation, m: Memory) -> None:
        """Withhold what a wait for holders keeps from new pods, and nothing that an earlier wait kept."""
        if m.waiting_for != o.patience:
            await self._actor.publisher.release()
        await self._actor.publisher.withhold(to_withhold(o, m))

    async def holders_to_leave(self, step: steps.Evict, o: Observation, m: Memory) -> Memory:
        assert o.plan is not None
        corner = self._actor.corner
        if not await self._may_evict(step):
            return self._actor.failed(_eviction_off(step, o.holding.policy), o, m)
        log.info("asking %d pods to leave: %s", len(step.pods), ", ".join("/".join(each) for each in step.pods))
        await self.withhold(o, m)
        m = m.waiting(o)
        bound = Bound(float(o.holding.timeout_s), superseded=self._actor.superseded)
        report = _Report(self._actor, step.status, o)

        async def remain(found: Sequence[drain.Stays]) -> None:
            await report.write(f"waiting for {'; '.join(map(str, found))}")

        evicted = await drain.evict(corner.api, step.pods, bound, node=corner.name, force=step.force, remain=remain)
        if evicted.stays and evicted.end is not End.SUPERSEDED:
            text = f"{len(evicted.stays)} of {len(step.pods)} pods did not leave: {evicted.stays[0]}"
            return self._actor.failed(Trouble("NotDrained", text, tuple(map(str, evicted.stays[1:]))), o, m)
        # Kubelet learns it later than the API server, and older ones name pods that have ended: no hot loop.
        await Bound(bound.poll_s, superseded=bound.superseded).run(asyncio.sleep(bound.poll_s))
        return m

    async def _may_evict(self, step: steps.Evict) -> bool:
        """Return whether RBAC lets this agent evict these pods. Raises ApiError."""
        api = self._actor.corner.api
        namespaces = sorted({namespace for namespace, _ in step.pods})
        return all([await api.can_i("create", "pods/eviction", each) for each in namespaces])


class _Report:
    """Adds to a status what a step waits for: when that changes, but not more often than every two seconds."""

    def __init__(self, actor: Actor, status: Status, o: Observation) -> None:
        self._actor, self._status, self._o = actor, status, o
        self._written = ""
        self._at = float("-inf")

    async def write(self, sentence: str) -> None:
        """An API server that refuses it does not end the wait."""
        if sentence == self._written or time.monotonic() - self._at < EVERY_S:
            return
        self._at = time.monotonic()
        status = msgspec.structs.replace(self._status, message=f"{self._status.message}; {sentence}")
        try:
            await self._actor.report(status, self._o)
        except ApiError as error:
            log.debug("not reported: %s: %s", sentence, error.brief)
        else:
            self._written = sentence


def _paused(o: Observation, concerned: tuple[Operand, ...]) -> list[Operand]:
    """Only those that the pause took away: an operand that is off is not waited for."""
    record = o.marks.record
    taken = record.former if record is not None else {}
    return [operand for operand in concerned if operand.label in taken]


def _eviction_off(step: steps.Evict, policy: str) -> Trouble:
    """Explain that the manifests give the right to evict only where an administrator asks for it."""
    names = ", ".join("/".join(each) for each in step.pods)
    return Trouble(
        "EvictionOff",
        f"policy {policy!r} evicts pods, and this agent has no right to evict {names}: the right is off by default",
        ("without Helm: kubectl apply -f deploy/kubernetes/optional/evictions.yaml",),
        "helm upgrade aliquot deploy/helm/aliquot --reuse-values --set migManager.evictions=true",
    )
