"""Rules of pods and of objects with pod templates."""

from __future__ import annotations

from typing import Any

from support.standin.answers import Cause
from support.standin.metadata import label_name_faults, qualified_faults
from support.standin.nodes import quantity_causes
from support.standin.quantity import amount
from support.standin.selectors import of_object

JSON = dict[str, Any]
_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_TEMPLATE = "deprecated.daemonset.template.generation"
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def fill_pod(value: JSON) -> None:
    """Fill in a pod's own defaults."""
    fill_pod_spec(value["spec"])
    value["spec"].setdefault("enableServiceLinks", True)
    for container in value["spec"].get("containers") or []:
        resources = container.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def fill_pod_spec(spec: JSON) -> None:
    """Fill in the defaults of every pod and pod template."""
    for key, default in _POD.items():
        spec.setdefault(key, {} if default == {} else default)
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        _fill_container(container, host=spec.get("hostNetwork", False))
    for volume in spec.get("volumes") or []:
        _fill_volume(volume)


def _fill_container(container: JSON, *, host: bool) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
    latest = tag in ("", "latest") and "@" not in container.get("image", "")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports") or []:
        if host and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _fill_probe(container[name])
    for row in container.get("env") or []:
        if "fieldRef" in row.get("valueFrom", {}):
            row["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")


def _fill_probe(probe: JSON) -> None:
    defaults = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    for key, value in defaults.items():
        probe.setdefault(key, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _fill_volume(volume: JSON) -> None:
    if not set(volume) - {"name"}:
        volume["emptyDir"] = {}
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for kind in ("configMap", "secret", "downwardAPI", "projected"):
        if kind in volume:
            volume[kind].setdefault("defaultMode", 0o644)


def new_pod(value: JSON) -> None:
    """Set the first status."""
    value["status"] = {"phase": "Pending", "qosClass": _quality(value["spec"])}


def admit_pod(value: JSON) -> None:
    """Add the tolerations of an unavailable node, and the priority."""
    spec = value["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for key in _TOLERATED:
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            row = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(row)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _quality(spec: JSON) -> str:
    """Return Guaranteed, Burstable or BestEffort, from only cpu and memory."""
    rows = [c.get("resources", {}) for c in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]]
    counted = ("cpu", "memory")
    if not any(name in (row.get(k) or {}) for row in rows for k in ("limits", "requests") for name in counted):
        return "BestEffort"
    for row in rows:
        limits, requests = row.get("limits") or {}, row.get("requests") or {}
        if any(name not in limits or requests.get(name, limits[name]) != limits[name] for name in counted):
            return "Burstable"
    return "Guaranteed"


def check_pod(new: JSON, old: JSON | None) -> list[Cause]:
    if old is None:
        return check_pod_spec(new["spec"], "spec")
    before, after = _comparable(old["spec"]), _comparable(new["spec"])
    return [] if before == after else [Cause.forbidden("spec", _CHANGEABLE)]


def _comparable(spec: JSON) -> JSON:
    """Return a pod's spec without the fields that may change."""
    found = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations")}
    for key in ("containers", "initContainers"):
        if found.get(key):
            found[key] = [{k: v for k, v in c.items() if k != "image"} for c in found[key]]
    return found


def check_pod_spec(spec: JSON, field: str) -> list[Cause]:
    found: list[Cause] = []
    containers = spec.get("containers") or []
    if not containers:
        found.append(Cause.required(f"{field}.containers"))
    names: set[str] = set()
    for n, container in enumerate(containers):
        found += _check_container(container, f"{field}.containers[{n}]", names)
    allowed = ("Always", "OnFailure", "Never")
    if spec["restartPolicy"] not in allowed:
        found.append(Cause.unsupported(f"{field}.restartPolicy", spec["restartPolicy"], allowed))
    for key in spec.get("nodeSelector") or {}:
        found += [Cause.invalid(f"{field}.nodeSelector", key, why) for why in qualified_faults(key)]
    return found


def _check_container(container: JSON, field: str, names: set[str]) -> list[Cause]:
    found: list[Cause] = []
    name = container.get("name")
    if not name:
        found.append(Cause.required(f"{field}.name"))
    else:
        found += [Cause.invalid(f"{field}.name", name, why) for why in label_name_faults(name)]
        if name in names:
            found.append(Cause.duplicate(f"{field}.name", name))
        names.add(name)
    if not container.get("image"):
        found.append(Cause.required(f"{field}.image"))
    resources = container.get("resources") or {}
    for key in ("limits", "requests"):
        found += quantity_causes(resources.get(key) or {}, f"{field}.resources.{key}", "{}[{}]")
    return found + _check_extended(resources, field)


def _check_extended(resources: JSON, field: str) -> list[Cause]:
    """Check that extended resources are not overcommitted: requests equal limits."""
    found: list[Cause] = []
    limits = resources.get("limits") or {}
    for name, text in (resources.get("requests") or {}).items():
        if "/" not in name:
            limit = limits.get(name)
            if limit is not None and (amount(text) or 0) > (amount(limit) or 0):
                why = f"must be less than or equal to {name} limit of {limit}"
                found.append(Cause.invalid(f"{field}.resources.requests", text, why))
        elif name not in limits:
            found.append(
                Cause.required(f"{field}.resources.limits", "Limit must be set for non overcommitable resources")
            )
        elif limits[name] != text:
            why = f"must be equal to {name} limit of {limits[name]}"
            found.append(Cause.invalid(f"{field}.resources.requests", text, why))
    return found


def fill_template(value: JSON) -> None:
    """Fill in the defaults of the pods that the template creates."""
    template = value["spec"].get("template")
    if template:
        fill_pod_spec(template.setdefault("spec", {}))


def fill_daemon_set(value: JSON) -> None:
    fill_template(value)
    spec = value["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    annotations = value["metadata"].setdefault("annotations", {})
    annotations.setdefault(_TEMPLATE, "1")


def count_template(new: JSON, old: JSON) -> None:
    """Count the generation of a daemon set's template, which is in an annotation."""
    before = int((old["metadata"].get("annotations") or {}).get(_TEMPLATE, "1"))
    changed = new["spec"].get("template") != old["spec"].get("template")
    new["metadata"]["annotations"][_TEMPLATE] = str(before + changed)


def fill_deployment(value: JSON) -> None:
    fill_template(value)
    spec = value["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def check_daemon_set(new: JSON, old: JSON | None) -> list[Cause]:
    spec = new["spec"]
    selector, template = spec.get("selector"), spec.get("template") or {}
    found: list[Cause] = []
    if old is not None and old["spec"]["selector"] != selector:
        found.append(Cause.invalid("spec.selector", selector, "field is immutable"))
    labels = template.get("metadata", {}).get("labels") or {}
    if not of_object(selector)(labels):
        why = "`selector` does not match template `labels`"
        found.append(Cause.invalid("spec.template.metadata.labels", labels, why))
    return found + check_pod_spec(template.get("spec", {}), "spec.template.spec")
