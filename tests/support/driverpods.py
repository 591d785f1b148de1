"""A simulated driver pod of a node: its object, and a container that runs programs below a directory.

``below(<state>/<node>/driver)`` runs a simulated node's own ``nvidia-smi`` and ``sriov-manage``, as the real pod would:

    server.execs.play("nvidia-driver-n1", below(folder), namespace="harvester-system")
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from support import forkserver
from support.standin.execs import Command, Container, Ran

JSON = dict[str, Any]
NAMESPACE = "harvester-system"
LABEL = "nvidia-driver-daemonset"
CONTAINER = "nvidia-driver-ctr"
_PATH = ("usr/bin", "usr/sbin", "usr/local/bin", "bin")
_URL = "https://example.com/NVIDIA-Linux-x86_64-570.133.10-vgpu-kvm.run"


def driver_pod(node: str, *, name: str = "", namespace: str = NAMESPACE, ready: bool = True, url: str = _URL) -> JSON:
    """Build a pod as the driver toolkit's DaemonSet creates it, with its status."""
    container = {"name": CONTAINER, "image": "driver", "env": [{"name": "DRIVER_LOCATION", "value": url}]}
    name = name or f"nvidia-driver-{node}"
    state: JSON = {"running": {"startedAt": "2026-01-01T00:00:00Z"}} if ready else {"waiting": {"reason": "Starting"}}
    status: JSON = {
        "phase": "Running" if ready else "Pending",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [
            {
                "name": CONTAINER,
                "ready": ready,
                "restartCount": 0,
                "image": "driver",
                "imageID": "",
                "containerID": f"containerd://{name}-0" if ready else "",
                "state": state,
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": LABEL}},
        "spec": {"nodeName": node, "hostPID": True, "containers": [container]},
        "status": status,
    }


def below(root: Path, files: tuple[str, ...] = ("/tmp/ready",)) -> Container:
    """Build a container whose file system is ``root``: the programs in it, and a ``test`` that reads there. ``files``
    exist in addition.
    """

    def run(command: Command) -> Ran:
        program, *words = command.words
        if program == "test":
            return Ran(0 if _test(root, files, *words) else 1)
        if program == "env":
            return Ran(0, b"PATH=/usr/bin\nHOME=/root\n")
        path = _find(root, program)
        if path is None:
            what = f'exec: "{program}": executable file not found in $PATH'
            return Ran(
                refusal=f"OCI runtime exec failed: exec failed: unable to start container process: {what}: unknown"
            )
        done = forkserver.run(
            [*_simulated(path), *words],
            input=command.stdin,
            capture_output=True,
            timeout=120,
            env={**os.environ, "LC_ALL": "C"},
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def _test(root: Path, files: tuple[str, ...], *words: str) -> bool:
    match words:
        case ("-e", path):
            return path in files or (root / path.lstrip("/")).exists()
        case ("-x", path):
            return os.access(root / path.lstrip("/"), os.X_OK)
    raise AssertionError(f"test {' '.join(words)}: the played container knows -e and -x")


def _simulated(path: Path) -> list[str]:
    """Return the interpreter and the arguments that a simulated driver's program stands for, else the program."""
    last = path.read_bytes().splitlines()[-1]
    found = shlex.split(last.decode()) if last.startswith(b"exec ") else []
    return [sys.executable, *found[2:-1]] if found[2:3] == ["-m"] else [str(path)]


def _find(root: Path, program: str) -> Path | None:
    places = [root / program.lstrip("/")] if "/" in program else [root / folder / program for folder in _PATH]
    return next((path for path in places if os.access(path, os.X_OK) and path.is_file()), None)
