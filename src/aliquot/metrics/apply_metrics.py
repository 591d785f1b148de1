"""Metrics of plans and applies: durations by step, acts, failures by code, and refusals because of holders."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

from prometheus_client import CollectorRegistry

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.engine.ports import ApplyStatus
from aliquot.core.engine.step_timing import PLAN, TimedStep
from aliquot.core.model.plan import Plan
from aliquot.errors import AliquotError
from aliquot.metrics import instruments as make

REFUSED = "refused"
"""The outcome of a plan that the engine did not begin: the host changed meanwhile, or another process is
changing it.
"""
HELD_CODES = ("IN_USE", "HELD", "PASSTHROUGH", "FUNCTIONS_IN_USE")
"""Rules and codes of failures that end when the holder releases the device. The alerts use the same rules."""


class ApplyMetrics:
    """Metrics of a process that applies plans. ``retries`` is False for a process that never retries."""

    def __init__(self, registry: CollectorRegistry, *, retries: bool = True) -> None:
        self._ended = make.counter("aliquot_changes_total", registry)
        self._took = make.histogram("aliquot_change_seconds", registry)
        self._failures = make.counter("aliquot_change_failures_total", registry)
        self._held = make.counter("aliquot_held_refusals_total", registry)
        self._started = make.gauge("aliquot_change_started_timestamp_seconds", registry)
        self._steps = make.histogram("aliquot_change_step_seconds", registry)
        self._acts = make.counter("aliquot_acts_total", registry)
        self._retries = make.counter("aliquot_change_retries_total", registry) if retries else None
        for outcome in (*get_args(ApplyStatus), REFUSED):
            self._ended.labels(outcome)  # exported from the start: a counter that begins at 1 shows no increase
        self._lock = threading.Lock()
        self._running: list[float] = []

    def record_step(self, step: TimedStep) -> None:
        """Record a step that ended. A failed act does not count as done."""
        self._steps.labels(step.name).observe(step.seconds)
        if step.is_action and not step.code:
            self._acts.labels(step.name, step.profile).inc()

    @contextmanager
    def time_plan(self) -> Iterator[None]:
        """Time the planning inside the context."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.record_step(TimedStep(PLAN, time.monotonic() - started))

    @contextmanager
    def time_change(self) -> Iterator[None]:
        """Time the apply inside the context. An error that leaves it counts as a refusal, because the apply changed
        nothing.
        """
        started, began = time.monotonic(), time.time()
        self.start_change(began)
        try:
            yield
        except AliquotError as error:
            self.record_end(REFUSED, error.code)
            raise
        finally:
            self.finish_change(began, time.monotonic() - started)

    def record_outcome(self, outcome: ApplyOutcome) -> None:
        """Record the outcome of an applied plan."""
        self.record_end(outcome.status, outcome.error.code if outcome.error is not None else "")

    def record_end(self, outcome: str, code: str = "") -> None:
        """Record an outcome. ``code`` is that of the error, or ""."""
        self._ended.labels(outcome).inc()
        if code:
            self.count_failure(code)

    def count_failure(self, code: str) -> None:
        """Count an error by its code, which belongs to its class: so there are as many series as classes."""
        self._failures.labels(code).inc()
        if code in HELD_CODES:
            self._held.inc()

    def count_held_refusal(self) -> None:
        """Count a desired state that cannot be applied because a device is held."""
        self._held.inc()

    @staticmethod
    def is_blocked_by_holders(plan: Plan) -> bool:
        """Report whether a holder blocks the plan."""
        return any(blocker.rule in HELD_CODES for blocker in plan.blockers)

    def count_retry(self) -> None:
        """Count an attempt after one that failed."""
        if self._retries is not None:
            self._retries.inc()

    def start_change(self, started: float) -> None:
        """Record that a change started at that time (seconds of wall time)."""
        with self._lock:
            self._running.append(started)
            self._started.set(min(self._running))

    def finish_change(self, started: float, seconds: float) -> None:
        """Record that the change that started at that time ended."""
        self._took.observe(seconds)
        with self._lock:
            self._running.remove(started)
            self._started.set(min(self._running, default=0.0))
