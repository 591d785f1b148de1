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
from aliquot.kubernetes.gpu.config_label import internal
from aliquot.kubernetes.gpu.eviction import FORCE_WAIT_S
from aliquot.kubernetes.label_agent.agent import steps
from aliquot.kubernetes.label_agent.agent.decide import decide
from aliquot.kubernetes.label_agent.agent.executor import Actor
from aliquot.kubernetes.label_agent.agent.metrics import Tally
from aliquot.kubernetes.label_agent.agent.node_informer import Corner, NotReadYetError
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation
from aliquot.kubernetes.label_agent.agent.observer import Observer

BACKOFF = Backoff(first=0.5, longest=30.0, jitter=(0.8, 1.2))
PARTING_S = 10.0


class Loop:
    """The agent's heart. ``wake`` says that something happened; what, the next look finds out. ``trouble`` is why the
    last step could not be done, "" if it could. ``looked`` is told of each look, and of the step that was decided.
    """

    def __init__(
        self,
        corner: Corner,
        observer: Observer,
        actor: Actor,
        tally: Tally,
        looked: Callable[[Observation, steps.Step], None] = lambda *_: None,
    ) -> None:
        self.corner = corner
        self.observer = observer
        self.actor = actor
        self.tally = tally
        self.memory = Memory()
        self.last: Observation | None = None
        self.step: steps.Step = steps.Rest(0.0, "nothing was looked at yet")
        self.beat = time.monotonic()
        self._happened = asyncio.Event()
        self._stopping = False
        self._troubles = 0
        self._looked = looked
        self.trouble = ""

    def wake(self) -> None:
        """Something happened. Ends a rest, a wait that was for an older wish, and one for a pause that is undone."""
        self._happened.set()
        try:
            if self.last is not None and self._outrun(self.last):
                self.actor.superseded.set()
        except Exception:  # noqa: BLE001 -- whoever wakes us is a watch, which must not end for a defect of ours
            log.exception("internal fault: report this, with the output of: aliquot version")
            self.actor.superseded.set()

    @property
    def stopping(self) -> bool:
        """Whether the loop was asked to end."""
        return self._stopping

    def stop(self) -> None:
        """End after the step that is on."""
        self._stopping = True
        self._happened.set()
        self.actor.superseded.set()

    async def run(self) -> None:
        """Until ``stop``. What fails on the way is logged and tried again, later each time."""
        while not self._stopping:
            self.beat = time.monotonic()
            self._happened.clear()
            try:
                pause = await self.cycle()
                self._troubles, self.trouble = 0, ""
            except NotReadYetError:
                pause = BACKOFF.longest  # the watch wakes us
            except AliquotError as error:
                pause = self._trouble(error)
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave the node paused
                pause = self._defect(error)
            if pause and not self._stopping:
                await self._rest(pause)
        await self._part()

    async def cycle(self) -> float:
        """One look and one step; how long to rest after it, 0 to go on at once."""
        self.actor.superseded.clear()
        changes = self.corner.changes
        o = self.last = await self.observer.look(self.memory)
        self.memory = self.memory.seen(o)
        self.tally.looked(o)
        step = self.step = decide(o, self.memory)
        self._looked(o, step)
        if self._stopping or (self.corner.changes != changes and self._outrun(o)):
            return 0.0  # it happened while we looked
        log.debug("%s", step)
        self.beat = time.monotonic() + _may_take(step, o)
        self.memory = await self.actor.act(step, o, self.memory)
        return step.seconds if isinstance(step, steps.Rest) else 0.0

    async def _rest(self, seconds: float) -> None:
        # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event does.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._happened.wait()

    def _trouble(self, error: AliquotError) -> float:
        """The API server or the disk is in the way of a step, not the step itself."""
        self._troubles += 1
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        self.trouble = f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}"
        log.warning("%s", self.trouble)
        return BACKOFF.pause(self._troubles, asked or 0.0)

    def _defect(self, error: Exception) -> float:
        """Something that should not happen. It counts as a failed attempt, so that what is paused is given back."""
        log.exception("internal fault: report this, with the output of: aliquot version")
        self._troubles += 1
        if self.last is not None:
            self.memory = self.actor.failed(internal(error), self.last, self.memory)
        return BACKOFF.pause(self._troubles)

    def _outrun(self, o: Observation) -> bool:
        """True if what the last look saw is no longer worth waiting for."""
        return self._superseded(o) or self._resumed(o) or self._allowed(o)

    def _superseded(self, o: Observation) -> bool:
        """True if the wish is another one than that of the last look."""
        if self.corner.node is None:
            return False
        now = self.corner.marks
        return now.labels.get(names.CONFIG_LABEL) != o.label or self.observer.digest_of(o) != o.digest

    def _allowed(self, o: Observation) -> bool:
        """True if holders are waited for under a policy that holds no longer."""
        if self.corner.node is None or not isinstance(self.step, steps.Evict):
            return False
        try:
            settings, _, _ = self.observer.settings()
        except NotReadYetError:
            return False
        asked = self.corner.marks.annotations.get(names.HOLDERS_ANNOTATION)
        return settings.holding(o.label or "", asked) != o.holding

    def _resumed(self, o: Observation) -> bool:
        """True if operands are awaited that somebody takes out of the pause: they would never go."""
        if self.corner.node is None or not isinstance(self.step, steps.AwaitOperands):
            return False
        again = operands.pause(
            self.corner.marks, self.step.operands, wish=o.digest, cordon=o.holding.cordon, owner=o.owner
        )
        return bool(again)

    async def _part(self) -> None:
        """A last courtesy before the process ends: what is paused is given back, if the server answers. If it does
        not, and while another process changes the GPUs, the record is on the node, and the next agent does it.
        """
        if self.last is None:
            return
        marks = self.corner.marks if self.corner.node is not None else operands.Marks()
        now = msgspec.structs.replace(self.last, marks=marks, durable=self.actor.record.value, writer=self.actor.writer)
        if now.held_back:
            log.warning("paused GPU clients stay paused until the agent is back: %s changes the GPUs", now.writer)
        # Without a record of ours a pause is another manager's, where there is one.
        ours = now.settings.manage or marks.record is not None
        if not (now.owes_services or (ours and now.restoration)):
            return
        try:
            async with asyncio.timeout(PARTING_S):
                if now.owes_services:
                    self.memory = await self.actor.act(steps.StartServices(), self.last, self.memory)
                await self.corner.change(self.actor.restoration)
        except (AliquotError, TimeoutError) as error:
            log.warning("paused GPU clients stay paused until the agent is back: %s", error)


def _may_take(step: steps.Step, o: Observation) -> float:
    """How long a step may last by its own bounds, in seconds: silence before that is no sign of death."""
    match step:
        case steps.Rest():
            return step.seconds
        case steps.AwaitOperands():
            return float(o.settings.operands_s)
        case steps.Evict():
            return o.holding.timeout_s + FORCE_WAIT_S
        case _:
            return 0.0
