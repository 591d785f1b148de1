"""The real agent as a process of its own, on a simulated node with a cluster: start it, watch it, kill it.

It gets the arguments, the variables, the mounted files and the token that its DaemonSet gives it (``deployed``).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.managed_label import MIG, VGPU
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from support.cluster import Cluster
from support.deployed import AGENT, VGPUS, Deployed

NAMESPACE = "gpu-operator"
PATIENCE_S = 60.0
DEPLOY = {f"{names.DEPLOY_PREFIX}{each}": "true" for each in ("device-plugin", "gpu-feature-discovery", "dcgm")}
MIXED = {"MIG_STRATEGY": "mixed"}
"""The environment that the chart's value ``mig.strategy: mixed`` gives to the agent."""
Object = dict[str, Any]


class Agent:
    """A node of a cluster, with its agent. ``sim`` is the simulated machine below ``folder``; ``deployed`` is its pod
    as the DaemonSet creates it. ``environment`` and ``arguments`` come after those of the pod. ``config`` is a
    kubeconfig file that replaces the pod's token.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        name: str,
        template: str,
        *,
        labels: Mapping[str, str] | None = None,
        latency: str = "none",
        manifest: str = AGENT,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.name = name
        self.state = str(folder / f"{name}.d")
        self.log_path = folder / f"{name}.log"
        self.environment: dict[str, str] = {}
        self.arguments: list[str] = ["--kubelet-dir", ""]
        self.config: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.managed = VGPU if manifest.endswith(VGPUS) else MIG
        self.deployed = Deployed(manifest, name, folder / f"{name}.pod")
        self.deployed.install(cluster)
        control.start(self.state, template, "machine", latency)
        self.sim = SimClient(self.state, "machine")
        self.create("nodes", {"metadata": {"name": name, "labels": DEPLOY if labels is None else dict(labels)}})

    # -- the cluster

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Object:
        """Send a request that must succeed."""
        answer = self.cluster.request(method, path, body, {"Content-Type": kind})
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body}"
        found: Object = answer.body
        return found

    def create(self, plural: str, body: Object, namespace: str | None = None) -> Object:
        where = f"namespaces/{namespace}/" if namespace else ""
        kinds = {"nodes": "Node", "configmaps": "ConfigMap", "pods": "Pod", "namespaces": "Namespace"}
        return self.call("POST", f"/api/v1/{where}{plural}", {"apiVersion": "v1", "kind": kinds[plural], **body})

    def node(self) -> Object:
        return self.call("GET", f"/api/v1/nodes/{self.name}")

    def labels(self) -> dict[str, str]:
        return dict(self.node()["metadata"].get("labels", {}))

    def deploy(self) -> dict[str, str]:
        return {k: v for k, v in self.labels().items() if k.startswith(names.DEPLOY_PREFIX)}

    def label(self, **values: str | None) -> None:
        """Set the managed label (``config=...``) or any other label by its full name."""
        named = {self.managed.name if key == "config" else key: value for key, value in values.items()}
        self.patch({"metadata": {"labels": named}})

    def patch(self, body: Object) -> None:
        self.call("PATCH", f"/api/v1/nodes/{self.name}", body, "application/merge-patch+json")

    def configure(self, name: str, data: dict[str, str]) -> None:
        """Create or replace a ConfigMap of the agent's namespace."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        if self.cluster.request("GET", f"{path}/{name}").status == 404:
            self.call("POST", path, body)
        else:
            self.call("PUT", f"{path}/{name}", body)

    def settings(self, text: str) -> None:
        self.configure(names.SETTINGS_MAP, {names.SETTINGS_KEY: f"version: aliquot/v1\n{text}"})

    def status(self) -> Object:
        text = self.node()["metadata"].get("annotations", {}).get(names.STATUS_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    def events(self) -> list[Object]:
        query = urllib.parse.urlencode({"fieldSelector": f"involvedObject.name={self.name}"})
        return list(self.call("GET", f"/api/v1/namespaces/default/events?{query}")["items"])

    # -- the machine

    def geometry(self) -> list[list[str]]:
        """Return ``profile@start`` of each GPU's instances, in order."""
        return [
            sorted(f"{i['profile']}@{i['placement'].partition(':')[0]}" for i in gpu["instances"])
            for gpu in self.sim.show()["gpus"]
        ]

    def writes(self) -> list[str]:
        """Return every call that changed the GPUs, or tried to."""
        return [c["call"] for c in self.sim.calls() if c["call"] in control.WRITE_CALLS]

    @contextmanager
    def client(self) -> Iterator[None]:
        """Keep the GPUs open from another process, as DCGM or a display server does."""
        code = "import sys, time, pynvml; pynvml.nvmlInit(); print('open', flush=True); time.sleep(600)"
        folder = os.path.dirname(control.library(self.state, "machine"))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "LD_LIBRARY_PATH": folder},
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]

    # -- the process

    def start(self, *more: str) -> None:
        self.deployed.mount()
        self.config = self.config or self.deployed.kubeconfig(self.cluster)
        environment = {**os.environ, "ALIQUOT_STATE_DIR": self.state, "PYTHONUNBUFFERED": "1"}
        environment |= self.deployed.environment() | self.environment
        environment.pop("KUBECONFIG", None)
        words = [*self.deployed.words(), "--sim", "machine", "--port", "0", "--kubeconfig", str(self.config)]
        words += ["--cdi-dir", str(self.folder / f"{self.name}.cdi")]
        with open(self.log_path, "ab") as log:
            self.process = forkserver.Popen(
                [sys.executable, "-m", "aliquot", *words, *self.arguments, *more],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> int:
        """Send SIGTERM, as the kubelet does, and return the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def until(self, true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until something holds. The failure reports the current status and log."""
        end, pause = time.monotonic() + seconds, 0.02
        while not true():
            code = None if self.process is None else self.process.poll()
            assert code is None, f"the agent ended with {code} while waiting for: {what}\n{self.log()[-3000:]}"
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what}\n{self.status()}\n{self.log()[-3000:]}")
            self.cluster.pause(pause)
            pause = min(pause * 1.4, 0.15)

    def reaches(self, state: str, config: str | None = None, reason: str | None = None) -> Object:
        """Wait until this state is reported for this config, and return the status."""

        def there() -> bool:
            reported = self.status()
            same = config is None or reported.get("config", "") == config
            return same and reported.get("state") == state and (reason is None or reported.get("reason") == reason)

        self.until(there, f"state {state} for {config} ({reason})")
        self.until(lambda: self.labels().get(self.managed.state, "") == state, f"label {state}")
        return self.status()

    def request(self, config: str, state: str = "success", reason: str | None = None) -> Object:
        """Label the node, wait for the result and return it."""
        self.label(config=config)
        return self.reaches(state, config, reason)

    def close(self) -> None:
        self.kill()
        self.sim.close()
        control.stop(self.state)


class MakeAgent(Protocol):
    """The fixture ``make_agent``: a node with these GPUs and its agent, which is not started yet."""

    def __call__(
        self, template: str, *, labels: Mapping[str, str] | None = None, latency: str = "none", manifest: str = AGENT
    ) -> Agent: ...
