"""A simulated node with a real Docker and a real Podman; ``aliquot docker`` runs as a program."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from system.containers.dockerd import Dockerd
from system.containers.podman import Done, Podman, python

SOURCE = str(Path(__file__).resolve().parents[3] / "src")
INSIDE = Path(__file__).resolve().parent / "inside.py"
SLEEP = ("/bin/busybox", "sleep", "600")


class Bed:
    """A simulated node and both runtimes, which share a folder of CDI files."""

    def __init__(self, docker: Dockerd, podman: Podman, state: Path) -> None:
        self.docker, self.podman, self.state = docker, podman, str(state)
        self.cdi = podman.cdi
        control.start(self.state, "a100-sxm4-40gb*2", "n")
        self.node = SimClient(self.state, "n")
        control.library(self.state, "n")
        podman.program(docker.programs / "podman")

    def aliquot(self, *words: str, code: int = 0, **env: str) -> str:
        """Run a command and return its stdout, or its stderr if it is refused."""
        done = self.call(*words, **env)
        assert done.code == code, done.err
        return done.out if code == 0 else done.err

    def call(self, *words: str, **env: str) -> Done:
        path = f"{self.docker.programs}:{os.environ['PATH']}"
        given = {"PYTHONPATH": SOURCE, "ALIQUOT_STATE_DIR": self.state, "ALIQUOT_SIM": "n", "PATH": path}
        environment = {**os.environ, **self.docker.environment, **self.podman.environment, **given, **env}
        line = [sys.executable, "-m", "aliquot", *words]
        done = forkserver.run(line, capture_output=True, text=True, env=environment, timeout=120)
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.call(*words, "-o", "json")
        assert done.code == code, done.err
        return msgspec.json.decode(done.out or done.err, type=dict[str, Any])

    def cut(self, gpu: int, *profiles: str) -> list[str]:
        """Partition a GPU, write the CDI file and return the UUIDs of its MIG devices."""
        self.aliquot("apply", "--gpu", str(gpu), "--mig", ",".join(profiles))
        self.aliquot("cdi", "generate", "--out", str(self.cdi / "nvidia.com-gpu.yaml"))
        gpus = json.loads(self.aliquot("show", str(gpu), "-o", "json"))["gpus"]
        return [c["uuid"] for i in gpus[0]["instances"] for c in i["compute_instances"]]

    def arguments(self, runtime: str, *words: str) -> list[str]:
        more = () if runtime == "docker" else ("--spec-dir", str(self.cdi))
        return self.aliquot("docker", "run-args", *words, "--runtime", runtime, *more).split()

    def run(self, runtime: str, *words: str) -> Done:
        """Run a container: options, ``--``, a command."""
        if runtime == "docker":
            return self.docker.run(*words, mounts={"/opt/nvml/inside.py": str(INSIDE)})
        split = words.index("--")
        mounts = {"/opt/nvml/inside.py": str(INSIDE)}
        return self.podman.execute_run(*words[split + 1 :], options=words[:split], mounts=mounts)

    def seen(self, runtime: str, *options: str, others: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return what an unmodified NVML client observes in a container with these options."""
        env = ("--env", "PYTHONPATH=/opt/nvml", "--env", f"OTHERS={json.dumps(others)}")
        done = self.run(runtime, "--rm", *options, *env, "--", python(), "/opt/nvml/inside.py")
        assert done.code == 0, done.err
        return msgspec.json.decode(done.out, type=dict[str, Any])

    def start(self, runtime: str, *options: str) -> str:
        """Start a container that keeps running and return its id."""
        done = self.run(runtime, "--detach", *options, "--", *SLEEP)
        assert done.code == 0, done.err
        return done.out.strip()

    def remove(self, runtime: str, container: str) -> None:
        done = self.docker.docker("rm", "--force", container) if runtime == "docker" else self.podman.stop(container)
        assert done.code == 0, done.err

    def taken(self) -> dict[str, list[str]]:
        """Return the holders of each held device."""
        rows = self.json("docker", "list")["devices"]
        return {row["uuid"]: [h["id"] for h in row["taken"]] for row in rows if row["taken"]}

    def destroyed(self) -> int:
        """Return how many calls that destroy an instance reached the simulated driver."""
        calls = json.loads(self.aliquot("sim", "show", "n", "--calls", "-o", "json"))["calls"]
        return sum("Destroy" in each["call"] for each in calls)

    def close(self) -> None:
        self.docker.clean()
        self.podman.clean()
        self.node.close()
        control.stop(self.state)
        for path in self.cdi.iterdir():
            path.unlink()
