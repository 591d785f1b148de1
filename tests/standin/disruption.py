"""Evictions and pod disruption budgets."""

from __future__ import annotations

from typing import Any

from standin.answers import Cause, Refusal
from standin.selectors import of_object
from standin.store import Store

JSON = dict[str, Any]
_NOT_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


def fill(value: JSON) -> None:
    value.setdefault("spec", {})


def check(new: JSON, _: JSON | None) -> list[Cause]:
    spec = new["spec"]
    found: list[Cause] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        found.append(Cause.invalid("spec", spec, why))
    for key in ("minAvailable", "maxUnavailable"):
        value = spec.get(key)
        if isinstance(value, int) and value < 0:
            found.append(Cause.invalid(f"spec.{key}", value, "must be greater than or equal to 0"))
        if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
            found.append(Cause.invalid(f"spec.{key}", value, _NOT_PERCENT))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, *_POLICIES):
        found.append(Cause.unsupported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
    return found


def budgets(store: Store, pod: JSON) -> list[JSON]:
    """The budgets that a pod counts in."""
    labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
    rows = store.items("poddisruptionbudgets.policy", namespace)
    return [row for row in rows if of_object(row["spec"].get("selector"))(labels)]


def is_ready(pod: JSON) -> bool:
    rows = pod.get("status", {}).get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def unguarded(pod: JSON) -> bool:
    """Whether eviction need not ask a budget: the pod is over, not yet running, or being deleted."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def refusal(pod: JSON, found: list[JSON]) -> Refusal | None:
    """Why the pod may not be evicted now; None if it may."""
    if len(found) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        return Refusal(500, "InternalError", text)
    budget = found[0]
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    if not is_ready(pod) and (
        budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        or (status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) and status.get("desiredHealthy", 0) > 0)
    ):
        return None
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 1):
        refused = _violates(f"The disruption budget {name} is still being processed by the server.")
        (refused.details or {})["retryAfterSeconds"] = 10
        return refused
    if status.get("disruptionsAllowed", 0) > 0:
        return None
    needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return _violates(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")


def _violates(why: str) -> Refusal:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return Refusal(429, "TooManyRequests", text, {"causes": [{"reason": "DisruptionBudget", "message": why}]})


def spent(budget: JSON, pod: str, now: str) -> JSON:
    """The budget after one more eviction."""
    status = dict(budget["status"])
    status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    return {**budget, "status": status}
