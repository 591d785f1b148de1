"""The cluster of ``tools/sandbox.py --machines``: nodes with GPUs, and simulated KubeVirt and kubelets.

The API server is the stand-in, GPUs are simulated, the driver is in a pod of each node. The devices agents and the
controller with its webhooks are real processes with the rights of their manifests.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tools.demo_terminal import patiently, show

from aliquot.errors import AliquotError
from support.cluster import StandinCluster
from support.kubevirt.machines import Launcher
from support.standin.execs import Command, Container, Ran
from system.harvester.site import Site

NODES = {"node1": "a2:mdev:bus08", "node2": "a100-sxm4-40gb:mdev:bus04"}
"""The addresses are those of the pages: node1-000008000 and node2-000004000."""
_TURN_S = 0.2
_PATIENCE_S = 60


class Machines:
    """A cluster below one folder. ``start`` returns after the agents have reported their GPUs."""

    def __init__(self, folder: Path, nodes: Mapping[str, str] = NODES, *, all_devices: bool = False) -> None:
        self.folder, self.nodes, self.all_devices = folder, nodes, all_devices
        self.cluster = StandinCluster(folder)
        self.site: Site | None = None
        self.environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig())}
        self._over = threading.Event()
        self._players = threading.Thread(target=self._play, daemon=True)

    def start(self) -> None:
        self.site = Site(self.cluster, self.folder, self.nodes, all_devices=self.all_devices)
        self._players.start()
        for name, agent in self.site.agents.items():
            seen = partial(agent.all, "sriovgpudevices")
            patiently(partial(agent.until, seen, f"the GPU of {name}"))

    def stop(self) -> None:
        self._over.set()
        if self._players.is_alive():
            self._players.join(timeout=10)
        if self.site is not None:
            self.site.close()
        self.cluster.close()

    def _play(self) -> None:
        """Simulate KubeVirt and the kubelets, beside the commands of the user."""
        assert self.site is not None
        while not self._over.wait(_TURN_S):
            try:
                self.site.environment.step()
            except (
                AssertionError,
                AliquotError,
                OSError,
            ) as error:  # the user typed something unknown to the simulation: report it, and go on
                print(f"players: {error}", file=sys.stderr, flush=True)
            for node in self.site.environment.machines.values():
                for one in list(node.launchers.values()):
                    self.cluster.standin.execs.play(one.pod, _inside(one), one.namespace)

    # -- what is typed

    def file(self, name: str, body: dict[str, Any]) -> str:
        """Write a YAML file in the folder where commands run, and return its name."""
        (self.folder / name).write_text(yaml.safe_dump(body))
        return name

    def run(self, line: str) -> str:
        """Show a command, run it, and return its output. A wait that was too short is repeated."""
        out = ""

        def typed() -> None:
            nonlocal out
            done = self._typed(line)
            out = done.stdout
            assert done.returncode == 0, f"{line}: it ended with {done.returncode}"

        if line.startswith("kubectl wait "):
            patiently(typed)
        else:
            typed()
        return out

    def refused(self, line: str, because: str) -> None:
        """Show a command that must be refused with these words."""
        done = self._typed(line)
        assert done.returncode != 0, f"{line}: it was not refused"
        assert because in done.stdout, f"{line}: the output lacks {because!r}"

    def _typed(self, line: str) -> subprocess.CompletedProcess[str]:
        show(line)
        words = shlex.split(line)
        if words[0] == "aliquot":
            words[:1] = [sys.executable, "-m", "aliquot"]
        done = subprocess.run(
            words,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
        )
        print(done.stdout.rstrip(), flush=True)
        return done

    def quiet(self, line: str) -> str:
        """Return the output of a command without showing it."""
        return subprocess.run(
            shlex.split(line), env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def offered(self, node: str, resource: str) -> str:
        """Return the node's allocatable amount."""
        figures = json.loads(self.quiet(f"kubectl get node {node} -o json"))["status"].get("allocatable", {})
        return str(figures.get(resource, ""))

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for an effect of the simulation or the agents."""

        def wait() -> None:
            end = time.monotonic() + _PATIENCE_S
            while not true():
                assert time.monotonic() < end, f"not within {_PATIENCE_S} s: {what}\n{self._logs()}"
                assert self._players.is_alive(), "the players have ended"
                time.sleep(0.1)

        patiently(wait)

    def _logs(self) -> str:
        assert self.site is not None
        return "".join(f"-- {name}\n{agent.log()[-2000:]}" for name, agent in self.site.agents.items())

    def hints(self) -> str:
        """Return what a user types first, in another terminal."""
        assert self.site is not None
        assert self.site.controller is not None
        lines = [
            f"export KUBECONFIG={self.environment['KUBECONFIG']} PATH={Path(sys.executable).parent}:$PATH",
            "kubectl get sriovgpudevices   # then docs/howto/harvester-vms.md from step 2, or docs/harvester.md",
            f"curl -sk https://localhost:{self.site.controller.port}/v1/capacity",
            "kubectl -n harvester-system exec nvidia-driver-node2 -- nvidia-smi mig -lgi",
            *(
                f"ALIQUOT_STATE_DIR={agent.state} ALIQUOT_SIM=machine aliquot sim show   # usb, reboot on {name}"
                for name, agent in self.site.agents.items()
            ),
            *(f"tail -f {agent.log_path}" for agent in self.site.agents.values()),
            f"tail -f {self.folder}/controller.log",
        ]
        return "\n".join(lines)


def _inside(one: Launcher) -> Container:
    """Simulate the launcher's container, which knows only ``env``."""

    def run(command: Command) -> Ran:
        if command.words == ("env",):
            return Ran(0, one.env.encode())
        what = f'exec: "{command.words[0]}": executable file not found in $PATH'
        return Ran(refusal=f"OCI runtime exec failed: exec failed: unable to start container process: {what}: unknown")

    return run
