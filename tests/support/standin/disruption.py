"""Evictions and pod disruption budgets."""

from __future__ import annotations

from typing import Any

from support.standin.answers import Cause, RefusalError
from support.standin.managed import Owner
from support.standin.selectors import of_object
from support.standin.store import Store, clone

JSON = dict[str, Any]
_NOT_PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
OWNER = Owner("kube-apiserver", "Update", "policy/v1", "status")
"""The manager that writes a budget's status at an eviction."""
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


_PRINTED = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")


def fill(value: JSON) -> None:
    value.setdefault("spec", {})


def check(new: JSON, _: JSON | None) -> list[Cause]:
    spec = new["spec"]
    found: list[Cause] = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        printed = {key[0].upper() + key[1:]: spec.get(key) for key in _PRINTED}
        found.append(Cause.invalid("spec", printed, why))
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
    """Return the budgets that count a pod."""
    labels, namespace = pod["metadata"].get("labels") or {}, pod["metadata"]["namespace"]
    rows = store.items("poddisruptionbudgets.policy", namespace)
    return [row for row in rows if of_object(row["spec"].get("selector"))(labels)]


def is_ready(pod: JSON) -> bool:
    rows = pod.get("status", {}).get("conditions") or []
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def unguarded(pod: JSON) -> bool:
    """Report whether eviction need not check a budget: the pod has ended, is not yet running, or is being deleted."""
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def refusal(pod: JSON, found: list[JSON]) -> RefusalError | None:
    """Return why the pod may not be evicted now, or None if it may."""
    if len(found) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        return RefusalError(500, "", text)
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
    if has > needs:
        return _violates(f"The disruption budget {name} does not allow evicting pods currently")
    return _violates(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")


def _violates(why: str) -> RefusalError:
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return RefusalError(429, "TooManyRequests", text, {"causes": [{"reason": "DisruptionBudget", "message": why}]})


def targeted(pod: JSON, now: str) -> JSON:
    """Return the pod with the condition that states why it will be deleted."""
    found = clone(pod)
    conditions = [row for row in found["status"].get("conditions") or [] if row["type"] != "DisruptionTarget"]
    row = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    row.update(reason="EvictionByEvictionAPI", message="Eviction API: evicting")
    found["status"]["conditions"] = [*conditions, row]
    return found


def spent(budget: JSON, pod: str, now: str) -> JSON:
    """Return the budget after one more eviction."""
    status = dict(budget["status"])
    status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    left = status["disruptionsAllowed"] > 0
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if left else "False",
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": now,
        "reason": "SufficientPods" if left else "InsufficientPods",
        "message": "",
    }
    others = [row for row in status.get("conditions") or [] if row["type"] != condition["type"]]
    status["conditions"] = [*others, condition]
    return {**budget, "metadata": dict(budget["metadata"]), "status": status}
