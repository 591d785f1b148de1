"""Selection of the pod that has a node's GPU driver, and the reason why one cannot be used. Pure.

Source: harvester/charts, nvidia-driver-runtime (label, container, ``/tmp/ready``, ``DRIVER_LOCATION``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from aliquot.kubernetes.client.pods import Pod, PodContainer

NAMESPACE = "harvester-system"
SELECTOR = "app=nvidia-driver-daemonset"
CONTAINER = "nvidia-driver-ctr"
LOCATION = "DRIVER_LOCATION"
"""The variable with the address of the driver's installer."""
PLACEHOLDER = "HTTPENDPOINT"
"""The placeholder in the add-on's address, which the administrator replaces."""


DriverPodReason = Literal[
    "DriverInstalling",
    "DriverLocationMissing",
    "DriverPodAway",
    "DriverPodFailing",
    "DriverPodLeaving",
    "DriverPodNotReady",
    "DriverPodUnknown",
    "Forbidden",
    "NoDriverPod",
]


class DriverPod(msgspec.Struct, frozen=True):
    """A pod that may have the driver."""

    namespace: str
    name: str
    container: str
    uid: str = ""
    container_id: str = ""
    """It changes with each restart of the container."""

    @property
    def location(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class DriverPodLookup(msgspec.Struct, frozen=True):
    """The driver pod of a node; without a pod, a condition reason, a sentence, and the next command."""

    pod: DriverPod | None = None
    reason: DriverPodReason | Literal[""] = ""
    message: str = ""
    next_step: str = ""


def choose_pod(pods: Iterable[Pod], node: str, namespace: str = NAMESPACE) -> DriverPodLookup:
    """Return the pod of ``node`` to probe for its driver.

    Among several, for example during an update, a running pod that is not terminating wins, the newest first.
    """
    on_node = [pod for pod in pods if pod.spec.node_name == node]
    where = f"kubectl -n {namespace} get pods -l {SELECTOR} -o wide"
    if not on_node:
        text = f"node {node} has no driver pod ({SELECTOR} in namespace {namespace})"
        return DriverPodLookup(None, "NoDriverPod", text, where)
    newest = sorted(on_node, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.name), reverse=True)
    not_deleted = [pod for pod in newest if pod.metadata.deletion_timestamp is None]
    if not not_deleted:
        text = f"the driver pod {newest[0].name} of node {node} is being deleted, and no other pod exists yet"
        return DriverPodLookup(None, "DriverPodLeaving", text, where)
    return next((found for found in map(_lookup, not_deleted) if found.pod is not None), _lookup(not_deleted[0]))


def _lookup(pod: Pod) -> DriverPodLookup:
    container = _container(pod)
    where = f"pod {pod.metadata.namespace}/{pod.name}"
    describe = f"kubectl -n {pod.metadata.namespace} describe pod {pod.name}"
    status = next((s for s in pod.status.container_statuses if s.name == container.name), None)
    if pod.status.phase == "Running" and status is not None and status.ready:
        return DriverPodLookup(
            DriverPod(pod.metadata.namespace, pod.name, container.name, pod.metadata.uid, status.container_id)
        )
    location = next((env for env in container.env if env.name == LOCATION), None)
    if location is not None and location.value_from is None and _unset(location.value):
        text = f"{where} has no address for the driver: its {LOCATION} is {location.value or 'empty'}"
        step = "set the driver's URL: Harvester's add-on nvidia-driver-toolkit, or driverToolkit.location of our chart"
        return DriverPodLookup(None, "DriverLocationMissing", text, step)
    restarts = status.restart_count if status is not None else 0
    if restarts:
        text = f"{where} has restarted {restarts} times and is not ready: see its log"
        logs = f"kubectl -n {pod.metadata.namespace} logs {pod.name} -c {container.name} --previous"
        return DriverPodLookup(None, "DriverPodFailing", text, logs)
    detail = f": {pod.status.message}" if pod.status.message else ""
    return DriverPodLookup(
        None, "DriverPodNotReady", f"{where} is not ready ({pod.status.phase or 'Unknown'}){detail}", describe
    )


def _container(pod: Pod) -> PodContainer:
    """Return the driver's container, otherwise the first one."""
    containers = pod.spec.containers or (PodContainer(CONTAINER),)
    return next((c for c in containers if c.name == CONTAINER), containers[0])


def _unset(location: str) -> bool:
    return not location.strip() or PLACEHOLDER in location
