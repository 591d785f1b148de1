"""Conditions: whether an object is in its desired state, since when, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from aliquot.kubernetes.client.events import rfc3339
from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict

ConditionType = Literal["Ready", "Synced"]
ConditionStatus = Literal["True", "False", "Unknown"]
ConditionState = tuple[ConditionStatus, ObjectVerdict]


def condition(
    previous: Sequence[Condition], kind: ConditionType, status: ConditionStatus, why: ObjectVerdict, now: float
) -> Condition:
    """Return a condition of that kind.

    Its time is that of the last change of ``status``, not of the message. ``now`` is wall time in seconds.
    """
    last = next((c for c in previous if c.type == kind), None)
    since = last.last_transition_time if last is not None and last.status == status else None
    return Condition(kind, status, why.reason, why.message, since or rfc3339(now))
