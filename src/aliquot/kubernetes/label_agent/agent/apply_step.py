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
from aliquot.kubernetes.gpu.config_label import Trouble, trouble_of
from aliquot.kubernetes.gpu.node_status import FAILED, Status
from aliquot.kubernetes.label_agent.agent import status_builder as said
from aliquot.kubernetes.label_agent.agent import steps
from aliquot.kubernetes.label_agent.agent.affected_devices import doomed
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation
from aliquot.kubernetes.label_agent.agent.progress import Progress
from aliquot.kubernetes.node_agent import messages as phrases
from aliquot.kubernetes.node_agent.hang_reporter import HANG_POLL_S, HangReporter
from aliquot.kubernetes.node_agent.pod_holders import Use, taken

if TYPE_CHECKING:
    from aliquot.core.engine.context import Outcome
    from aliquot.kubernetes.label_agent.agent.executor import Actor

YOUNG_S = 3.0
"""How long kubelet may take from Allocate's answer until it names the pod."""


class Change:
    """The part of an actor that changes something for others."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def apply(self, step: steps.Apply, o: Observation, m: Memory) -> Memory:
        plain("Applying the selected MIG config to the node")
        young = await self._actor.publisher.withhold(doomed(step.plan, o))
        if young:
            log.info("%d devices were given to pods just now: waiting for kubelet to name them", len(young))
            await asyncio.sleep(YOUNG_S)
        return await self._carried_out(step, o, m)

    async def _carried_out(self, step: steps.Apply, o: Observation, m: Memory) -> Memory:
        """Kubelet is asked once more: what it gave away since the look is not taken."""
        try:
            late = await self._given_meanwhile(step.plan, o)
        except AliquotError as error:
            log.warning("%s: looking again", error.brief)
            return m
        if late:
            log.info("pod %s/%s was given a device meanwhile: looking again", late.namespace, late.pod)
            return m
        started = time.monotonic()
        changes = self._actor.tally.changes
        if m.failures and m.attempt == o.attempt:
            changes.retried()
        progress = Progress(self._actor.corner, step.status, len(step.plan.actions))
        try:
            with changes.change():
                outcome = await self._attended(step, o, progress)
        except AliquotError as error:
            if error.code == "MOVED":
                return m
            if isinstance(error, LockedError):
                return msgspec.structs.replace(m, locked_by=error.holder or "another process")
            return self._actor.failed(trouble_of(error, "ApplyRefused"), o, m)
        finally:
            await progress.close()
        seconds = time.monotonic() - started
        self._actor.tally.applied(outcome, seconds)
        if outcome.error is not None:
            return self._undone(outcome.status, outcome.error, outcome.sentences, o, m)
        done = phrases.deed(step.plan)
        word = "healed" if step.status.reason == said.HEALING else "applied"
        text = f"{o.label!r} is {word}: {done} in {seconds:.1f} s, verified by a fresh read"
        if outcome.status == "reboot":
            text = f"{o.label!r} waits for a reboot: {done}"
        return msgspec.structs.replace(m, did=text, did_for=o.digest, failed=None, failures=0, waiting_since=0.0)

    async def _attended(self, step: steps.Apply, o: Observation, progress: Progress) -> Outcome:
        """Apply the plan, and report a driver call that hangs meanwhile: nothing else looks at the node before the end
        of this step. What is paused stays paused, since the change goes on once the call returns.
        """
        written = step.status

        async def report(hang: DriverHangsError | None) -> None:
            nonlocal written
            status = _hanging(o, hang) if hang is not None else step.status
            if status != written:
                await self._actor.report(status, o)
                written = status

        hangs = HangReporter(lambda: self._actor.hardware.hang, report)
        applying = asyncio.create_task(self._actor.hardware.apply(step.plan, progress.report))
        try:
            while not (await asyncio.wait((applying,), timeout=HANG_POLL_S))[0]:
                await hangs.poll()
        finally:
            applying.cancel()
        return applying.result()

    def _undone(
        self, status: str, error: AliquotError, sentences: tuple[str, ...], o: Observation, m: Memory
    ) -> Memory:
        back = "not all could be undone" if status == "partial" else "the former state is back"
        resets = o.plan is not None and any(isinstance(a, Reset) for a in o.plan.actions)
        if isinstance(error, InUseError) and resets and o.settings.with_reboot:
            log.info("%s; %s: going for a reboot instead of a reset", error.brief, back)
            return msgspec.structs.replace(m, no_reset=o.digest)
        trouble = Trouble("ApplyFailed", f"{error.brief}; {back}", (*error.details, *sentences), error.next_step or "")
        return self._actor.failed(trouble, o, m)

    async def _given_meanwhile(self, plan: Plan, o: Observation) -> Use | None:
        if self._actor.publisher.uses is None or o.holding.policy == "force":
            return None
        assert o.inventory is not None
        found = taken(doomed(plan, o), await self._actor.publisher.uses(), o.inventory)
        return next(iter(await self._actor.corner.living(found) if found else ()), None)


def _hanging(o: Observation, hang: DriverHangsError) -> Status:
    """The node's status while a call of the change hangs."""
    return said.status(
        o, FAILED, phrases.DRIVER_HANGS, hang.brief, next_step=hang.next_step or "", details=hang.details
    )
