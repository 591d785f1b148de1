"""Environments with an API server: the stand-in, and the sandboxes of ``tools``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import controllers
from support.cluster import StandinCluster, kubectl_minor
from support.deployed import AGENT

from .environment import Environment
from .pages import HOUSE

sys.path.append(str(HOUSE))  # for tools, which is not in the tests' path


@contextmanager
def api(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    _kubectl()
    cluster = StandinCluster(environment.folder)
    over = threading.Event()
    players = threading.Thread(target=_settled, args=(cluster, over), daemon=True)
    try:
        environment.env["KUBECONFIG"] = str(cluster.kubeconfig())
        players.start()
        yield
    finally:
        over.set()
        players.join(20)
        cluster.close()


def _settled(cluster: StandinCluster, over: threading.Event) -> None:
    """Act as Kubernetes' own controllers: remove deleted objects and their dependents."""
    while not over.wait(0.5):
        with contextlib.suppress(AssertionError, OSError):
            controllers.settle(cluster)
            for each in cluster.get("/api/v1/namespaces")["items"]:
                if "deletionTimestamp" in each["metadata"]:
                    done = {**each, "spec": {"finalizers": []}}
                    cluster.request("PUT", f"/api/v1/namespaces/{each['metadata']['name']}/finalize", done)


@contextmanager
def cluster(environment: Environment, words: tuple[str, ...], manifest: str = AGENT) -> Iterator[None]:
    from tools.sandbox import Sandbox

    _kubectl()
    box = Sandbox(environment.folder, words[0], manifest)
    try:
        box.start()
        _taken(environment, box.environment)
        yield
    finally:
        box.stop()


@contextmanager
def operator(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    """Start the same cluster with the GPU Operator's ClusterPolicy, but without the operator."""
    with _beside_operator(environment, words, "30-agent.yaml", "nvidia-mig-manager"):
        yield


@contextmanager
def vgpus(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    """Start it with the agent of a node for VMs."""
    with _beside_operator(environment, words, "optional/vgpus.yaml", "nvidia-vgpu-device-manager"):
        yield


@contextmanager
def _beside_operator(environment: Environment, words: tuple[str, ...], manifest: str, app: str) -> Iterator[None]:
    with cluster(environment, words, f"kubernetes-beside-operator/{manifest}"):
        config = {**os.environ, **environment.env}
        # The page waits until no pod has the operator's label before it installs what already runs here.
        pod = ["kubectl", "-n", "gpu-operator", "label", "pods", "-l", f"app={app}", "app-"]
        subprocess.run(pod, env=config, check=True, capture_output=True)
        for name in ("definition", "policy"):
            file = Path(__file__).with_name(f"clusterpolicy-{name}.yaml")
            done = subprocess.run(["kubectl", "create", "-f", str(file)], env=config, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            if name == "definition":
                wait = ["kubectl", "wait", "crd/clusterpolicies.nvidia.com", "--for", "condition=Established"]
                subprocess.run(wait, env=config, check=True, capture_output=True)
        yield


@contextmanager
def machines(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    from tools.sandbox_machines import Machines

    _kubectl()
    box = Machines(environment.folder)
    try:
        box.start()
        _taken(environment, box.environment)
        assert box.site is not None
        assert box.site.controller is not None
        environment.words = {"localhost:8443": f"localhost:{box.site.controller.port}"}
        yield
    finally:
        box.stop()


def _taken(cluster_environment: Environment, environment: dict[str, str]) -> None:
    """Add the sandbox's environment variables."""
    cluster_environment.env.update({k: v for k, v in environment.items() if os.environ.get(k) != v})


def _kubectl() -> None:
    if kubectl_minor() < 27:
        pytest.skip("kubectl 1.27 or later is needed")
