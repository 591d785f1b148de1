"""Conditions: whether an object is as wished, since when, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict

ConditionType = Literal["Ready", "Synced"]
ConditionStatus = Literal["True", "False", "Unknown"]
ConditionState = tuple[ConditionStatus, ObjectVerdict]
PENDING = "Pending"


def condition(
    previous: Sequence[Condition], kind: ConditionType, status: ConditionStatus, why: ObjectVerdict, now: float
) -> Condition:
    """A condition of that kind. Its time is that of the last change of ``status``, not of the sentence; ``now`` is wall
    time in seconds.
    """
    last = next((c for c in previous if c.type == kind), None)
    since = last.last_transition_time if last is not None and last.status == status else None
    return Condition(kind, status, why.reason, why.message, since or timestamp(now))


def timestamp(now: float) -> str:
    """Wall time as Kubernetes writes it: ``2024-02-21T05:57:37Z``."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
