"""Which pod of a node has the GPU driver, and why one cannot be used. Pure.

Source: harvester/charts, nvidia-driver-runtime (label, container, ``/tmp/ready``, ``DRIVER_LOCATION``).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.kubernetes.client.pods import Container, Pod

NAMESPACE = "harvester-system"
SELECTOR = "app=nvidia-driver-daemonset"
CONTAINER = "nvidia-driver-ctr"
LOCATION = "DRIVER_LOCATION"
"""The variable that holds the address of the driver's installer."""
PLACEHOLDER = "HTTPENDPOINT"
"""What stands in the add-on's address until somebody replaces it."""


class DriverPod(msgspec.Struct, frozen=True):
    """A pod that may have the driver. ``container_id`` is another one after each restart of the container."""

    namespace: str
    name: str
    container: str
    uid: str = ""
    container_id: str = ""

    @property
    def place(self) -> str:
        return f"pod {self.namespace}/{self.name}"


class Found(msgspec.Struct, frozen=True):
    """Where a node's driver is. Without a ``pod``: a word for conditions, a sentence, and the next thing to type."""

    pod: DriverPod | None = None
    reason: str = ""
    message: str = ""
    next_step: str = ""


def choose(pods: Iterable[Pod], node: str, namespace: str = NAMESPACE) -> Found:
    """The pod of ``node`` to be asked whether its driver is ready. Of several (an old one that lingers, a new one that
    comes) a running one that is not leaving wins, the newest first.
    """
    here = [pod for pod in pods if pod.spec.node_name == node]
    where = f"kubectl -n {namespace} get pods -l {SELECTOR} -o wide"
    if not here:
        text = f"node {node} has no driver pod ({SELECTOR} in namespace {namespace})"
        return Found(None, "NoDriverPod", text, where)
    newest = sorted(here, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.name), reverse=True)
    staying = [pod for pod in newest if pod.metadata.deletion_timestamp is None]
    if not staying:
        text = f"the driver pod {newest[0].name} of node {node} is being deleted, and no other is there yet"
        return Found(None, "DriverPodLeaving", text, where)
    return next((found for found in map(_judged, staying) if found.pod is not None), _judged(staying[0]))


def _judged(pod: Pod) -> Found:
    container = _container(pod)
    where = f"pod {pod.metadata.namespace}/{pod.name}"
    look = f"kubectl -n {pod.metadata.namespace} describe pod {pod.name}"
    status = next((s for s in pod.status.container_statuses if s.name == container.name), None)
    if pod.status.phase == "Running" and status is not None and status.ready:
        return Found(DriverPod(pod.metadata.namespace, pod.name, container.name, pod.metadata.uid, status.container_id))
    location = next((env for env in container.env if env.name == LOCATION), None)
    if location is not None and location.value_from is None and _unset(location.value):
        text = f"{where} does not know where to get the driver: its {LOCATION} is {location.value or 'empty'}"
        step = "set the driver's URL: Harvester's add-on nvidia-driver-toolkit, or driverToolkit.location of our chart"
        return Found(None, "DriverLocationMissing", text, step)
    restarts = status.restart_count if status is not None else 0
    if restarts:
        text = f"{where} has restarted {restarts} times, and is not ready: its log says why"
        logs = f"kubectl -n {pod.metadata.namespace} logs {pod.name} -c {container.name} --previous"
        return Found(None, "DriverPodFailing", text, logs)
    said = f": {pod.status.message}" if pod.status.message else ""
    return Found(None, "DriverPodNotReady", f"{where} is not ready ({pod.status.phase or 'Unknown'}){said}", look)


def _container(pod: Pod) -> Container:
    """The driver's, else the first."""
    containers = pod.spec.containers or (Container(CONTAINER),)
    return next((c for c in containers if c.name == CONTAINER), containers[0])


def _unset(location: str) -> bool:
    return not location.strip() or PLACEHOLDER in location
