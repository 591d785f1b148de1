"""A node of a cluster around the kubelet double: it registers, reports its capacity, and runs the pods bound to it.

It does the work of kube-scheduler and kubelet for the API server, as far as tests need it. It uses plain requests, so
that it serves the stand-in and a real kube-apiserver alike. With a runner the containers are real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod, Runner

Object = dict[str, Any]
Request = Callable[[str, str, object, str], tuple[int, Any]]
"""Method, path, body, content type: status and decoded body."""

_MERGE = "application/merge-patch+json"


class NodeDouble:
    """Node ``name``. ``root`` is the kubelet's directory (keep it short: a unix socket's path has 107 bytes)."""

    def __init__(self, request: Request, name: str, root: Path, runner: Runner | None = None) -> None:
        self.name = name
        self.root = root
        self._request = request
        self._stop = threading.Event()
        self._known: dict[str, Pod] = {}
        self.kubelet = Kubelet(root, status=self._report, runner=runner)
        self._thread = threading.Thread(target=self._sync, daemon=True)

    def start(self) -> None:
        """Start the node. The node object must exist."""
        self.kubelet.start()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        for pod in list(self._known.values()):
            self.kubelet.remove(pod)
        self.kubelet.stop()

    def _report(self, capacity: dict[str, int], allocatable: dict[str, int]) -> None:
        texts = [{name: str(n) for name, n in figures.items()} for figures in (capacity, allocatable)]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the double is ready"}
        body = {"status": {"capacity": texts[0], "allocatable": texts[1], "conditions": [ready]}}
        self._ask("PATCH", f"/api/v1/nodes/{self.name}/status", body, _MERGE)

    def _ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, Any]:
        with suppress(OSError):
            return self._request(method, path, body, kind)
        return 0, None

    # -- pods

    def _sync(self) -> None:
        while not self._stop.wait(0.1):
            status, found = self._ask("GET", "/api/v1/pods")
            if status != 200:
                continue
            here = []
            for pod in found["items"]:
                if not pod["spec"].get("nodeName"):
                    self._bind(pod)
                elif pod["spec"]["nodeName"] == self.name:
                    here.append(pod)
            self._step(here)

    def _bind(self, pod: Object) -> None:
        """Bind a pod, as a scheduler of one node: if its requests fit the free resources."""
        _, node = self._ask("GET", f"/api/v1/nodes/{self.name}")
        if not node or node["spec"].get("unschedulable"):
            return
        wanted: dict[str, int] = {}
        for container in _containers(pod):
            for name, count in container.limits.items():
                wanted[name] = wanted.get(name, 0) + count
        given: dict[str, int] = {}
        for running in self._known.values():
            for container in running.containers:
                for name, count in container.limits.items():
                    given[name] = given.get(name, 0) + count
        there = {name: int(text) for name, text in node["status"].get("allocatable", {}).items() if "/" in name}
        if all(there.get(name, 0) - given.get(name, 0) >= count for name, count in wanted.items()):
            meta = pod["metadata"]
            target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
            self._ask("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", body)

    def _step(self, here: list[Object]) -> None:
        uids = {pod["metadata"]["uid"] for pod in here}
        for uid in set(self._known) - uids:
            self.kubelet.remove(self._known.pop(uid))
        for pod in here:
            meta, uid = pod["metadata"], pod["metadata"]["uid"]
            phase = pod.get("status", {}).get("phase", "Pending")
            if meta.get("deletionTimestamp"):
                if uid in self._known:
                    self.kubelet.remove(self._known.pop(uid))
                self._ask("DELETE", f"{_path(meta)}?gracePeriodSeconds=0")
            elif uid not in self._known and phase == "Pending":
                self._run(pod)

    def _run(self, pod: Object) -> None:
        meta = pod["metadata"]
        made = Pod(meta["name"], tuple(_containers(pod)), meta["namespace"], meta["uid"])
        try:
            self.kubelet.admit(made)
        except AdmissionError as error:
            self._phase(meta, "Failed", {"reason": error.reason, "message": str(error)})
            return
        self._known[made.uid] = made
        self._phase(meta, "Running")

    def _phase(self, meta: Object, phase: str, more: Object | None = None) -> None:
        self._ask("PATCH", f"{_path(meta)}/status", {"status": {"phase": phase, **(more or {})}}, _MERGE)

    def ended(self, namespace: str, name: str, phase: str) -> None:
        """End a container of this pod."""
        self._phase({"namespace": namespace, "name": name}, phase)


def _path(meta: Object) -> str:
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"


def _containers(pod: Object) -> list[Container]:
    return [
        Container(
            each["name"],
            {name: int(text) for name, text in each.get("resources", {}).get("limits", {}).items() if "/" in name},
            each.get("image", ""),
            tuple(each.get("command", ())),
        )
        for each in pod["spec"]["containers"]
    ]
