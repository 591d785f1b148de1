"""What both node agents count: looks, what came of plans, requests, and the figures of the last look."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from aliquot.core.engine.context import Outcome
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import still
from aliquot.foundation.driver_calls import oldest_s
from aliquot.foundation.state_store import Unreadable
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import Changes
from aliquot.metrics.gpu_samples import Gpus
from aliquot.metrics.page import Page
from aliquot.metrics.snapshot import Look, Seen, smaller
from aliquot.metrics.state_file_metrics import StateFileGauge


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
        self._state_files = StateFileGauge(r)
        self._requests = make.counter(f"{family}_api_requests_total", r)
        make.gauge(f"{family}_driver_call_seconds", r).labels(node).set_function(oldest_s)
        self.changes = Changes(r)
        self._last = Look(node)
        self._there: Inventory | None = None
        self._held = False
        self.page = Page(r, Gpus(lambda: (self._last,)), lambda: self._last)

    def state(self, now: str) -> None:
        for state in self._states:
            self._state.labels(self._node, state).set(state == now)

    def unreadable(self, files: Iterable[Unreadable]) -> None:
        """State files that cannot be understood."""
        self._state_files.count(self._node, files)

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

    def _seen(
        self, inventory: Inventory | None, at: float, blocked: tuple[str, ...], unhealthy: int | None = None
    ) -> Seen:
        """What is told beside the GPUs of a new look. What they are used for is looked at less often: it stays with the
        pieces that are the same ones still, for ids come again.
        """
        usage, hints = self._last.seen.usage, self._last.seen.smaller
        if inventory is not None:
            usage = still(usage, self._there, inventory) if self._there is not None else ()
            known = {(u.gpu, u.instance) for u in usage}
            hints = tuple(hint for hint in hints if hint[:2] in known)
            self._there = inventory
        return Seen(at, usage, blocked, unhealthy, hints)

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
