"""What both node agents count: looks, what came of plans, requests, and the figures of the last look."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from aliquot.engine.world import Outcome
from aliquot.metrics import make
from aliquot.metrics.changes import Changes
from aliquot.metrics.gpus import Gpus
from aliquot.metrics.look import Look, smaller
from aliquot.metrics.page import Page
from aliquot.model.plan import Plan
from aliquot.model.usage import Usage


class AgentTally:
    """Counts. ``page`` is what is served; ``changes`` is told of plans and applies. ``family`` is how the names of an
    agent's own metrics begin; ``states`` are those that it can be in.
    """

    def __init__(self, node: str, family: str, states: tuple[str, ...]) -> None:
        r = self.registry = make.registry()
        self._node, self._states = node, states
        self._state = make.gauge(f"{family}_state", r)
        self._looks = make.counter(f"{family}_looks_total", r)
        self._applies = make.counter(f"{family}_applies_total", r)
        self._took = make.histogram(f"{family}_apply_seconds", r)
        self._requests = make.counter(f"{family}_api_requests_total", r)
        self.changes = Changes(r)
        self._last = Look(node)
        self._held = False
        self.page = Page(r, Gpus(lambda: (self._last,)), lambda: self._last)

    def state(self, now: str) -> None:
        for state in self._states:
            self._state.labels(self._node, state).set(state == now)

    def applied(self, outcome: Outcome, seconds: float) -> None:
        self.ended(outcome.status, seconds)
        self.changes.came_to(outcome)

    def ended(self, how: str, seconds: float) -> None:
        """A plan was carried out, or refused."""
        self._applies.labels(self._node, how).inc()
        self._took.observe(seconds)

    def requested(self, verb: str, resource: str, status: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(status)).inc()

    @property
    def usage(self) -> tuple[Usage, ...]:
        """What the GPUs are used for, as of the last look at that."""
        return self._last.seen.usage

    @usage.setter
    def usage(self, usage: tuple[Usage, ...]) -> None:
        now = self._last
        hints = smaller(now.inventory, usage, time.time()) if now.inventory is not None else ()
        self._last = msgspec.structs.replace(now, seen=msgspec.structs.replace(now.seen, usage=usage, smaller=hints))

    def _saw(self, look: Look, plans: Iterable[Plan]) -> None:
        """A look, and the plans for what is asked: a wish that holders are in the way of counts once for as long as
        that lasts, not once a look.
        """
        self._looks.labels(self._node).inc()
        self._last = look
        held = any(map(self.changes.is_held, plans))
        if held and not self._held:
            self.changes.held()
        self._held = held
