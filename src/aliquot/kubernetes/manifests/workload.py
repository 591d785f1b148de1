"""The shapes that our workloads share: pods that may nothing on their node, pods that may everything, and Services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot.kubernetes.manifests.values import Object, Values, labels, metadata

AGENT_GRACE_S = 300
"""How long an agent's pod may take to end: a change ends or goes back first. Its longest driver call, a program that
enables virtual functions or changes instances, may take 185 s.
"""
_NOBODY = 65534
_LINUX = {"kubernetes.io/os": "linux"}


class Container(msgspec.Struct, frozen=True):
    """What a workload's pods run. ``name`` is their label ``app``, too, ``component`` the part of Aliquot that they
    are. ``ready`` is the page that says so, ``memory`` what is asked for and what is the most.
    """

    name: str
    component: str
    words: Sequence[str]
    variables: Sequence[Object]
    ports: Mapping[str, int]
    ready: str = "/readyz"
    memory: tuple[str, str] = ("64Mi", "256Mi")


def deployment(run: Container, values: Values, **rollout: Object) -> Object:
    """One pod that may nothing on its node. Its account and the Deployment have the container's name."""
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "serviceAccountName": run.name,
        "nodeSelector": _LINUX,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, values) | {"securityContext": confined}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(run.name, run.component, values.namespace),
        "spec": {"replicas": 1, **rollout, "selector": _selector(run), "template": _template(run, pod)},
    }


def daemon_set(name: str, run: Container, pod: Object, mounts: list[Object], values: Values) -> Object:
    """A privileged pod on every node that ``pod`` lets it be on; ``pod`` is what is particular to it."""
    looked = {"startupProbe": _probe("/healthz", 5, 60)}
    may = {"securityContext": {"privileged": True, "readOnlyRootFilesystem": True}, "volumeMounts": mounts}
    every: Object = {
        "serviceAccountName": run.name,
        "priorityClassName": "system-node-critical",
        "nodeSelector": _LINUX,
        "tolerations": [{"operator": "Exists"}],
        "hostPID": True,
        "terminationGracePeriodSeconds": AGENT_GRACE_S,
        "containers": [_container(run, values, looked) | may],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, run.component, values.namespace),
        "spec": {
            "selector": _selector(run),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": _template(run, every | pod),
        },
    }


def service(meta: Object, app: str, port: str, number: int, **more: object) -> Object:
    """A Service before the port of that name of all pods with the label ``app``."""
    ports = [{"name": port, "port": number, "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {**more, "selector": {"app": app}, "ports": ports},
    }


def of_pod(**fields: str) -> list[Object]:
    """Variables with what a pod is told of itself: each with the path of its field."""
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _container(run: Container, values: Values, first: Object | None = None) -> Object:
    asked, most = run.memory
    return {
        "name": run.name,
        "image": values.image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(run.words),
        "env": list(run.variables),
        "ports": [{"name": name, "containerPort": port} for name, port in run.ports.items()],
        **(first or {}),
        "livenessProbe": _probe("/healthz", 20, 3),
        "readinessProbe": _probe(run.ready, 10, 3),
        "resources": {"requests": {"cpu": "10m", "memory": asked}, "limits": {"memory": most}},
    }


def _probe(path: str, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _selector(run: Container) -> Object:
    return {"matchLabels": {"app": run.name}}


def _template(run: Container, pod: Object) -> Object:
    return {"metadata": {"labels": labels(run.component, run.name)}, "spec": pod}
