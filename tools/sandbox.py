"""A cluster on a laptop: a stand-in API server, a node with simulated GPUs, a kubelet double and the real agent.

``make sandbox`` runs it until Ctrl-C; ``make demo-kubernetes`` tells a story with kubectl and ends. With ``--machines``
(``make sandbox-machines``, ``make demo-machines``) it is GPUs for virtual machines: ``sandbox_machines.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tools.demo_terminal import patiently, reported, show  # noqa: E402
from tools.sandbox_machines import NODES, Machines  # noqa: E402
from tools.sandbox_story import story as story_of_machines  # noqa: E402

from support.agents import NAMESPACE, Agent  # noqa: E402
from support.cluster import StandinCluster, kubectl_minor  # noqa: E402
from support.deployed import AGENT, EVICTIONS, apply  # noqa: E402
from support.nodedouble import NodeDouble  # noqa: E402
from support.standin.execs import Command, Ran  # noqa: E402

NODE = "gpu-1"
_SETTINGS = {"data": {"settings.yaml": "version: aliquot/v1\nmig: {strategy: mixed}\ntimes: {check-seconds: 5}\n"}}
MIXED = f"kubectl -n {NAMESPACE} patch configmap aliquot-settings --type merge -p '{json.dumps(_SETTINGS)}'"
"""The command with which an administrator allows several profiles on a node."""
POD = """apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    image: registry.example/train
    resources: {limits: {nvidia.com/mig-3g.40gb: 1}}
"""


class Sandbox:
    """A sandbox below one folder. The agent is that of the DaemonSet in ``manifest``, as it is rendered."""

    def __init__(self, folder: Path, template: str, manifest: str = AGENT) -> None:
        self.folder = folder
        self.cluster = StandinCluster(folder)
        self.cluster.namespace(NAMESPACE)
        self.agent = Agent(self.cluster, folder, NODE, template, manifest=manifest)
        self.node = NodeDouble(self._request, NODE, folder / "kubelet")
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(self.cluster.kubeconfig()),
            "ALIQUOT_STATE_DIR": self.agent.state,
            "ALIQUOT_SIM": "machine",
        }

    def _request(self, method: str, path: str, body: object, kind: str) -> tuple[int, object]:
        answer = self.cluster.request(method, path, body, {"Content-Type": kind})
        return answer.status, answer.body

    def start(self) -> None:
        self.agent.arguments = ["--kubelet-dir", str(self.node.root)]
        self.agent.settings("times: {check-seconds: 5}")
        self.node.start()
        self.agent.start()
        self.cluster.standin.execs.play(self.agent.deployed.name, self._in_agent, NAMESPACE)
        self.until(lambda: self.agent.status(), "the agent's first status")

    def _in_agent(self, command: Command) -> Ran:
        """Run a command of Aliquot in the agent's pod."""
        if command.words[0] != "aliquot":
            return Ran(refusal=f'exec: "{command.words[0]}": executable file not found in $PATH')
        words = [sys.executable, "-m", "aliquot", *command.words[1:]]
        done = subprocess.run(words, env=self.environment, capture_output=True, cwd=self.folder)
        return Ran(done.returncode, done.stdout, done.stderr)

    def stop(self) -> None:
        self.agent.close()
        self.node.stop()
        self.cluster.close()

    def hints(self) -> str:
        """Return what a user types first, in another terminal."""
        return "\n".join(
            [
                f"export KUBECONFIG={self.environment['KUBECONFIG']} PATH={Path(sys.executable).parent}:$PATH",
                f"export ALIQUOT_STATE_DIR={self.agent.state} ALIQUOT_SIM=machine",
                "# then docs/howto/in-a-cluster.md from step 3, which begins with:",
                MIXED,
                f"kubectl label node {NODE} nvidia.com/mig.config=all-balanced",
                f"tail -f {self.agent.log_path}",
            ]
        )

    def run(self, line: str, *, stdin: str = "") -> None:
        """Show a command and run it."""
        show(line)
        words = shlex.split(line)
        if words[0] == "aliquot":
            words[:1] = [sys.executable, "-m", "aliquot"]
        subprocess.run(words, env=self.environment, input=stdin, text=True, check=True, cwd=self.folder)

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait for an effect of the agent or the kubelet."""
        patiently(lambda: self.agent.until(true, what))

    def reaches(self, state: str, config: str) -> None:
        """Wait for a state of the agent, and print the reason of ``failed``."""
        patiently(lambda: self.agent.reaches(state, config))
        if state == "failed":
            print(f"\n# failed: {self.agent.status()['message']}", flush=True)


def story(box: Sandbox) -> None:
    """Show labels, allocation, drift, healing and a misspelled name."""
    watch_command = "kubectl get nodes -L nvidia.com/mig.config -L nvidia.com/mig.config.state"
    box.run(watch_command)
    print("\n# an installation begins with the strategy single, for layouts of one profile; mixed is for all others")
    box.run(MIXED)
    box.run(f"kubectl label node {NODE} nvidia.com/mig.config=all-balanced")
    box.reaches("success", "all-balanced")
    box.run(watch_command)
    box.until(lambda: box.agent.node()["status"].get("allocatable"), "allocatable")
    box.run(f"kubectl get node {NODE} -o jsonpath={{.status.allocatable}}")
    print("\n\n# a pod takes an instance: instances that fit the next geometry are kept, held ones are never destroyed")
    box.run("kubectl create --validate=false -f -", stdin=POD)
    box.until(lambda: box.node.kubelet.pods, "the pod to run")
    box.run(f"kubectl label node {NODE} --overwrite nvidia.com/mig.config=all-1g.10gb")
    box.reaches("failed", "all-1g.10gb")
    box.run(watch_command)
    print("\n# the pod has it; with the holder policy drain it is evicted, and the change goes on")
    apply(box.cluster, EVICTIONS)  # agents may not evict until an administrator grants it
    box.run(f"kubectl annotate node {NODE} aliquot.dev/holders=drain")
    box.reaches("success", "all-1g.10gb")
    box.run(watch_command)
    print("\n# an instance is destroyed by hand, and the agent heals it")
    box.run("aliquot sim destroy 0 7")
    box.until(lambda: len(box.agent.geometry()[0]) == 7, "healed")
    box.until(lambda: "created 1x" in box.agent.status()["message"], "reported")
    print("\n# a misspelled name changes nothing, and the message suggests the right one")
    box.run(f"kubectl label node {NODE} --overwrite nvidia.com/mig.config=all-1g.10bg")
    box.reaches("failed", "all-1g.10bg")
    box.run(f"kubectl describe node {NODE}")
    print("\nDone: labelled, allocated, drained, broken, healed. `make sandbox` keeps one running for you.")


def _machines(folder: Path, options: argparse.Namespace) -> Machines:
    nodes = dict(NODES)
    for each in options.node:
        name, _, template = each.partition("=")
        nodes[name] = template
    return Machines(folder, nodes, all_devices=options.all_devices)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--story", action="store_true", help="run the story and end")
    parser.add_argument("--machines", action="store_true", help="GPUs for virtual machines")
    parser.add_argument("--node", action="append", default=[], metavar="NAME=TEMPLATE", help="a node for --machines")
    parser.add_argument("--all-devices", action="store_true", help="with --machines: serve every PCI and USB device")
    parser.add_argument("--template", default="h100-80gb-hbm3*2", help="the node's GPUs, as for 'aliquot sim start'")
    options = parser.parse_args()
    if options.story and shutil.which("kubectl") is None:
        print("kubectl is not installed (Debian: apt-get install kubernetes-client)", file=sys.stderr)
        return 2
    if options.machines and kubectl_minor() < 27:
        print("kubectl 1.27 or later is needed (Debian 13: apt-get install kubernetes-client)", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="aq-"))
    box: Machines | Sandbox | None = None
    try:
        box = _machines(folder, options) if options.machines else Sandbox(folder, options.template)
        box.start()
        if options.story:
            return reported(lambda: story_of_machines(box) if isinstance(box, Machines) else story(box))
        print(box.hints(), "# Ctrl-C here ends everything", sep="\n", flush=True)
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # what was begun is ended in order
        if box is not None:
            box.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
