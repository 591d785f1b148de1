"""Nodes of the simulated cluster for VMs: the kubelet double, and what the launchers on it received."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from support.cluster import Cluster
from support.kubevirt.launchers import DOMAIN, asked, over
from support.kubevirt.writes import write
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod

JSON = dict[str, Any]


class Launcher(msgspec.Struct, frozen=True):
    """A running pod: its container's environment and device files (host path, path inside, permissions)."""

    namespace: str
    pod: str
    node: str
    machine: str
    environment: dict[str, str]
    devices: tuple[tuple[str, str, str], ...]

    @property
    def env(self) -> str:
        """The output of ``env`` in the container."""
        rows = {"PATH": "/usr/local/bin:/usr/bin", "HOSTNAME": self.pod, **self.environment, "HOME": "/root"}
        return "".join(f"{name}={value}\n" for name, value in rows.items())

    def ids(self, prefix: str) -> tuple[str, ...]:
        """Return the device ids in the variables with this prefix."""
        values = [value for name, value in sorted(self.environment.items()) if name.startswith(f"{prefix}_")]
        return tuple(each for value in values for each in value.split(","))


Hook = Callable[[Launcher], None]
"""A hook called when a launcher starts or ends. A ValueError at the start means that QEMU could not open its devices.
"""


def _idle(_launcher: Launcher) -> None:
    """Ignore a launcher, in an environment without hardware."""


class Machine:
    """A node. An agent finds the kubelet in ``kubelet.directory`` and ``kubelet.pod_resources``."""

    def __init__(
        self, cluster: Cluster, name: str, labels: dict[str, str], on_start: Hook = _idle, on_stop: Hook = _idle
    ) -> None:
        self.name = name
        self.labels = labels
        self.launchers: dict[tuple[str, str], Launcher] = {}
        self._cluster, self._on_start, self._on_stop = cluster, on_start, on_stop
        self._root = Path(tempfile.mkdtemp(prefix="vm-"))  # a unix socket's path has 107 bytes
        self._known: dict[str, Pod] = {}
        self._last_reported: JSON | None = None
        self.kubelet = Kubelet(self._root)
        self.kubelet.start()
        if cluster.request("GET", f"/api/v1/nodes/{name}").status == 404:
            cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})

    def close(self) -> None:
        self.kubelet.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def restart_kubelet(self) -> None:
        """Restart the kubelet: its checkpoint stays, its directory is wiped, the launchers keep running."""
        self.kubelet.restart()

    def report(self) -> bool:
        """Report the node's resources to the API server, if they changed."""
        figures = {
            "capacity": {"pods": "110"} | {name: str(n) for name, n in self.kubelet.capacity.items()},
            "allocatable": {"pods": "110"} | {name: str(n) for name, n in self.kubelet.allocatable.items()},
        }
        if figures == self._last_reported:
            return False
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the double is ready"}
        body = {"status": {**figures, "conditions": [ready]}}
        if not write(self._cluster, "PATCH", f"/api/v1/nodes/{self.name}/status", body):
            return False
        self._last_reported = figures
        return True

    def step(self, pods: list[JSON]) -> bool:
        """Start new pods and end those that are to go. Report whether anything happened. ``pods`` are those of the
        whole cluster.
        """
        mine = [pod for pod in pods if pod["spec"].get("nodeName") == self.name]
        done = False
        for uid in set(self._known) - {pod["metadata"]["uid"] for pod in mine}:
            self._end(uid)
            done = True
        for pod in mine:
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                self._end(meta["uid"])
                path = f"{pod_path(meta)}?gracePeriodSeconds=0"
                done |= not meta.get("finalizers") and write(self._cluster, "DELETE", path)
            elif over(pod):
                done |= self._end(meta["uid"])
            elif meta["uid"] not in self._known and pod.get("status", {}).get("phase", "Pending") == "Pending":
                self._begin(pod)
                done = True
        return done

    def _begin(self, pod: JSON) -> None:
        meta = pod["metadata"]
        made = Pod(meta["name"], (Container("compute", asked(pod)),), meta["namespace"], meta["uid"])
        try:
            given = self.kubelet.admit(made)["compute"]
        except AdmissionError as error:
            self.phase(meta, "Failed", reason=error.reason, message=str(error))
            return
        self._known[made.uid] = made
        started = Launcher(
            *(meta["namespace"], meta["name"], self.name, (meta.get("annotations") or {}).get(DOMAIN, "")),
            given.envs,
            given.devices,
        )
        try:
            self._on_start(started)
        except ValueError as error:
            self.kubelet.remove(self._known.pop(made.uid))
            self.phase(meta, "Failed", reason="Error", message=str(error))
            return
        self.launchers[meta["namespace"], meta["name"]] = started
        self.phase(meta, "Running")

    def _end(self, uid: str) -> bool:
        pod = self._known.pop(uid, None)
        if pod is None:
            return False
        self.kubelet.remove(pod)
        ended = self.launchers.pop((pod.namespace, pod.name), None)
        if ended is not None:
            self._on_stop(ended)
        return True

    def phase(self, meta: JSON, phase: str, **more: str) -> None:
        """Write a pod's status as the kubelet does."""
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        body = {"status": {"phase": phase, "conditions": [ready], **more}}
        write(self._cluster, "PATCH", f"{pod_path(meta)}/status", body)


def pod_path(meta: JSON) -> str:
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
