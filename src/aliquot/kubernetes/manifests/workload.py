"""Shapes that our workloads share: unprivileged pods, privileged pods, and Services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests.values import Object, Values, labels, metadata

AGENT_GRACE_S = 300
"""Time in seconds for an agent's pod to end: a running change is finished or rolled back first. Its longest driver
call, a program that enables virtual functions or changes instances, may take 185 s.
"""
_UNPRIVILEGED_UID = 65534
_LINUX = {"kubernetes.io/os": "linux"}


class WorkloadContainer(msgspec.Struct, frozen=True):
    """The container of a workload's pods."""

    name: str
    """Also the value of the label ``app``."""
    component: str
    """The part of Aliquot that it runs."""
    args: Sequence[str]
    variables: Sequence[Object]
    ports: Mapping[str, int]
    ready_path: str = "/readyz"
    """Path of the readiness page."""
    memory: tuple[str, str] = ("64Mi", "256Mi")
    """Request and limit of memory."""


def deployment(container: WorkloadContainer, values: Values, **rollout: Object) -> Object:
    """Return a Deployment of an unprivileged pod. Its account and the Deployment have the container's name."""
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "serviceAccountName": container.name,
        "nodeSelector": _LINUX,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UNPRIVILEGED_UID,
            "runAsGroup": _UNPRIVILEGED_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(container, values) | {"securityContext": confined}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(container.name, container.component, values.namespace),
        "spec": {"replicas": 1, **rollout, "selector": _selector(container), "template": _template(container, pod)},
    }


def daemon_set(name: str, container: WorkloadContainer, pod: Object, mounts: list[Object], values: Values) -> Object:
    """Return a DaemonSet of a privileged pod on every node that ``pod`` permits. ``pod`` has the fields
    specific to it.
    """
    startup = {"startupProbe": _probe("/healthz", 5, 60)}
    privileged = {"securityContext": {"privileged": True, "readOnlyRootFilesystem": True}, "volumeMounts": mounts}
    base: Object = {
        "serviceAccountName": container.name,
        "priorityClassName": "system-node-critical",
        "nodeSelector": _LINUX,
        "tolerations": [{"operator": "Exists"}],
        "hostPID": True,
        "terminationGracePeriodSeconds": AGENT_GRACE_S,
        "containers": [_container(container, values, startup) | privileged],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, container.component, values.namespace),
        "spec": {
            "selector": _selector(container),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": _template(container, base | pod),
        },
    }


def node_affinity(nodes: tuple[str, str]) -> Object:
    """Return the affinity to nodes by their label ``aliquot.dev/allocation``: an operator and the value."""
    operator, value = nodes
    terms = [{"matchExpressions": [{"key": names.ALLOCATION_LABEL, "operator": operator, "values": [value]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def service(meta: Object, app: str, port: str, number: int, **more: object) -> Object:
    """Return a Service for the port of that name of all pods with the label ``app``."""
    ports = [{"name": port, "port": number, "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {**more, "selector": {"app": app}, "ports": ports},
    }


def pod_field_variables(**fields: str) -> list[Object]:
    """Return variables from fields of the pod: each name with the path of its field."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _container(container: WorkloadContainer, values: Values, probes: Object | None = None) -> Object:
    request, limit = container.memory
    return {
        "name": container.name,
        "image": values.image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(container.args),
        "env": list(container.variables),
        "ports": [{"name": name, "containerPort": port} for name, port in container.ports.items()],
        **(probes or {}),
        "livenessProbe": _probe("/healthz", 20, 3),
        "readinessProbe": _probe(container.ready_path, 10, 3),
        "resources": {"requests": {"cpu": "10m", "memory": request}, "limits": {"memory": limit}},
    }


def _probe(path: str, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _selector(container: WorkloadContainer) -> Object:
    return {"matchLabels": {"app": container.name}}


def _template(container: WorkloadContainer, pod: Object) -> Object:
    return {"metadata": {"labels": labels(container.component, container.name)}, "spec": pod}
