"""The real agent on a simulated node, and the raw side: the driver calls of the same change in a plain loop."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from subprocess import Popen, TimeoutExpired
from typing import Any

from benchmarks.bench_cluster import NAMESPACE, NODE, Answer, Cluster, ClusterServer
from benchmarks.bench_node import Node, side_by_side
from benchmarks.measure import clock

from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.model.xids import XidPolicy
from aliquot.core.planner.plan import plan
from aliquot.hardware.nvml.session import NvmlSession
from aliquot.sim import lifecycle as control

FIRST = "all-enabled"
"""MIG mode without instances: the first request for every node."""
PARTING_S = 30.0


class Subject:
    """A GPU node, its agent and its cluster. ``plugin``: beside a kubelet."""

    def __init__(self, name: str, cluster: Cluster, state: str, *, plugin: bool) -> None:
        self.name = name
        self.cluster = cluster
        self.plugin = plugin
        self._state = state
        self._process: Popen[bytes] | None = None
        self._asked_before = Counter[str]()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start the agent, and return the seconds until its first status. It may write byte code, as images have it."""
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "KUBECONFIG")}
        folder = self.cluster.folder
        words = ["agent", "--node-name", NODE, "--sim", self.name, "--namespace", NAMESPACE, "--port", "0"]
        words += ["--kubeconfig", self.cluster.kubeconfig, "--cdi-dir", os.path.join(folder, "cdi")]
        words += ["--kubelet-dir", self.cluster.kubelet if self.plugin else ""]
        self.cluster.do(ClusterServer.forget)
        self._asked_before = Counter(self.traffic()["requests"])
        began = time.perf_counter()
        with open(self._log, "ab") as log:
            self._process = Popen(
                [sys.executable, "-m", "aliquot", *words],
                env=environment | {"ALIQUOT_STATE_DIR": self._state, "MIG_STRATEGY": "mixed"},
                stdout=log,
                stderr=log,
            )
        self._checked(ClusterServer.until, FIRST, 60.0)
        return time.perf_counter() - began

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(PARTING_S)
        except TimeoutExpired:
            process.kill()
            process.wait()

    def request(self, config: str) -> float:
        """Return the seconds from the label to success."""
        return self._checked(ClusterServer.request, config)

    def traffic(self) -> dict[str, Any]:
        return self.cluster.do(ClusterServer.traffic)

    @property
    def streams(self) -> int:
        """The number of watches that this agent opened since its start."""
        found = Counter(self.traffic()["requests"]) - self._asked_before
        return sum(n for name, n in found.items() if name.startswith("watch "))

    @property
    def _log(self) -> str:
        return os.path.join(self.cluster.folder, "agent.log")

    def _checked(self, method: Callable[..., Answer], *arguments: object) -> Answer:
        try:
            return self.cluster.do(method, *arguments)
        except RuntimeError as error:
            with open(self._log) as log:
                raise RuntimeError(f"{error}\n{log.read()[-2000:]}") from error


class RawSide:
    """The raw side: only the write calls of a change, on a node of its own."""

    def __init__(self, state: str, name: str) -> None:
        self._node = Node(state, name)
        self._config = load(to_yaml(generate(self._node.read())), "generated")

    def request(self, config: str) -> float:
        """Make the calls with a thread per GPU, and return the seconds."""
        inventory = self._node.read()
        made = plan(inventory, select(self._config, config, inventory))
        assert not made.blocked, made.blockers
        return clock(lambda: self._node.loop(made))

    def poll(self, times: int) -> float:
        """Return the CPU seconds of one health check of all devices, which the agent makes once a second."""
        health = self._node.connection.nvml.health(XidPolicy())
        inventory = self._node.read()
        health.poll(inventory)
        began = time.process_time()
        for _ in range(times):
            health.poll(inventory)
        return (time.process_time() - began) / times

    def close(self) -> None:
        self._node.close()


def start_nodes(state: str, templates: dict[str, str]) -> None:
    """Start simulated nodes with MIG mode on before the agents read them: an A100 needs a reset to change it."""
    with ExitStack() as stack:
        jobs = []
        for name, template in templates.items():
            control.start(state, template, name, latency="measured")
            session = stack.enter_context(closing(NvmlSession(control.library(state, name))))
            for index in range(session.nv.nvmlDeviceGetCount()):
                jobs.append(partial(_enable, session, index))
        side_by_side(jobs)


def _enable(session: NvmlSession, index: int) -> None:
    session.nv.nvmlDeviceSetMigMode(session.nv.nvmlDeviceGetHandleByIndex(index), 1)
