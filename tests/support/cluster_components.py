"""A real kube-scheduler and kube-controller-manager beside the real API server of ``cluster_real``.

Both are optional: they run only where their programs are beside kube-apiserver and etcd.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.cluster import RealCluster
from support.cluster_real import assets

CONTROLLERS = ("resourceclaim-controller", "device-taint-eviction-controller")
"""What dynamic resource allocation needs: claims of templates, and the eviction from tainted devices."""


def component(name: str) -> Path | None:
    """Return the path of a program beside kube-apiserver and etcd, or None if it is missing."""
    folder = assets()
    program = folder / name if folder else None
    return program if program and os.access(program, os.X_OK) else None


@contextlib.contextmanager
def scheduler(cluster: RealCluster, program: Path, more: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Run kube-scheduler inside the block, with ``more`` in its configuration. Yields the path of its log."""
    configuration = cluster.folder / "kube-scheduler.json"
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig()), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "percentageOfNodesToScore": 100,
        **(more or {}),
    }
    configuration.write_text(json.dumps(settings))
    with _running(cluster.folder, program, [f"--config={configuration}", "--secure-port=0"]) as log:
        yield log


@contextlib.contextmanager
def controller_manager(cluster: RealCluster, program: Path) -> Iterator[Path]:
    """Run the controllers of dynamic resource allocation inside the block. Yields the path of their log."""
    arguments = [
        f"--kubeconfig={cluster.kubeconfig()}",
        f"--controllers={','.join(CONTROLLERS)}",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    with _running(cluster.folder, program, arguments) as log:
        yield log


@contextlib.contextmanager
def _running(folder: Path, program: Path, arguments: Sequence[str]) -> Iterator[Path]:
    log = folder / f"{program.name}.log"
    with open(log, "ab") as stream:
        process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield log
    finally:
        process.kill()  # it holds no state
        process.wait()
