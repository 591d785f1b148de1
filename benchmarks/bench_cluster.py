"""A cluster in a process of its own: the stand-in API server, the wire to it, a kubelet, and other nodes that change.

The agent's connections go through a relay that counts bytes as they are on the wire, TLS included. Other changes of
the store are made inside the process, so that only the agent's requests are counted.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import mkdtemp
from typing import Any, TypeVar, cast

import msgspec

from aliquot.kubernetes.gpu import names

NAMESPACE = "gpu-operator"
ACCOUNT = "aliquot-agent"
NODE = "gpu-node"
DEPLOY = ("device-plugin", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "operator-validator")
_MERGE = "application/merge-patch+json"
Answer = TypeVar("Answer")


class Cluster:
    """The client of the process."""

    def __init__(self, folder: str, process: Popen[bytes]) -> None:
        self.folder = folder
        self.kubeconfig = os.path.join(folder, "kubeconfig")
        self.kubelet = os.path.join(folder, "kubelet")
        self._process = process

    def do(self, method: Callable[..., Answer], *arguments: object) -> Answer:
        """Call a method of ``ClusterServer`` in the process. Raises RuntimeError with the text of its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode([method.__name__, arguments]) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the cluster's process ended")
        answer, error = msgspec.json.decode(line, type=tuple[Any, str])
        if error:
            raise RuntimeError(error)
        return cast("Answer", answer)


@contextmanager
def cluster(kubelet: bool, others: int) -> Iterator[Cluster]:
    """Run a cluster of one GPU node and ``others`` other nodes until the context ends."""
    folder = mkdtemp(prefix="aliquot-bench-")
    code = f"from benchmarks.bench_cluster import serve; serve({folder!r}, {kubelet}, {others})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, env=environment) as process:
            found = Cluster(folder, process)
            try:
                found.do(ClusterServer.ready)
                yield found
            finally:
                process.terminate()
    finally:
        shutil.rmtree(folder)


def serve(folder: str, kubelet: bool, others: int) -> None:
    """Execute the calls on standard input, a JSON line each, until it ends."""
    environment = ClusterServer(Path(folder), kubelet, others)
    for line in sys.stdin.buffer:
        name, arguments = msgspec.json.decode(line, type=tuple[str, list[Any]])
        answer, error = None, ""
        try:
            answer = getattr(environment, name)(*arguments)
        except Exception as failure:  # noqa: BLE001 -- the other process must get every error
            error = f"{type(failure).__name__}: {failure}"
        sys.stdout.buffer.write(msgspec.json.encode((answer, error)) + b"\n")
        sys.stdout.buffer.flush()


class ClusterServer:
    """The server inside the process. The client can call every public method."""

    def __init__(self, folder: Path, kubelet: bool, others: int) -> None:
        from support.cluster import StandinCluster

        self._cluster = StandinCluster(folder)
        self._standin = self._cluster.standin
        self._kind = self._standin.kinds.find("", "v1", "nodes")
        self._others = [f"other-{n:04d}" for n in range(others)]
        self._changes = 0
        self._pause = threading.Event()
        self._relay = _Relay(self._standin.port)
        self._setup(folder)
        if kubelet:
            from system.kubelet.kubeletdouble import Kubelet

            self._kubelet = Kubelet(folder / "kubelet")
            self._kubelet.start()

    def _setup(self, folder: Path) -> None:
        deploy = Path(__file__).parent.parent / "deploy" / "kubernetes"
        for name in ("00-namespace", "10-accounts", "11-rights"):
            self._cluster.apply((deploy / f"{name}.yaml").read_text())
        text = self._cluster.kubeconfig(NAMESPACE, ACCOUNT).read_text()
        path = folder / "kubeconfig"
        path.write_text(text.replace(f":{self._standin.port}", f":{self._relay.port}"))
        path.chmod(0o600)
        self._create(NODE, {f"{names.DEPLOY_PREFIX}{each}": "true" for each in DEPLOY})
        for other in self._others:
            self._create(other, {f"example.com/label-{n}": f"{other}-{n}" for n in range(40)})

    def ready(self) -> int:
        return len(self._others) + 1

    # -- writing to the store, uncounted

    def _call(self, verb: str, name: str, body: object) -> None:
        from support.standin.call import Call, Caller

        assert self._kind is not None
        kind = _MERGE if verb == "patch" else "application/json"
        caller = Caller("bench", ("system:masters",))
        call = Call(
            verb, self._kind, caller, name=name, body=msgspec.json.encode(body), content_type=kind, agent="bench/1"
        )
        (self._standin.rest.patch if verb == "patch" else self._standin.rest.create)(call)

    def _create(self, name: str, labels: dict[str, str]) -> None:
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        self._call("create", name, body)

    def label(self, value: str | None) -> None:
        self._call("patch", NODE, {"metadata": {"labels": {names.CONFIG_LABEL: value}}})

    def forget(self) -> None:
        """Remove state and status from the node, as before the first agent."""
        reported = {names.STATUS_ANNOTATION: None, names.MESSAGE_ANNOTATION: None}
        self._call("patch", NODE, {"metadata": {"labels": {names.STATE_LABEL: None}, "annotations": reported}})

    def churn(self, per_second: float) -> None:
        """Start changing labels of other nodes, at this rate; 0 stops it."""
        self._pause.set()
        self._pause = threading.Event()
        if per_second and self._others:
            threading.Thread(target=self._churn, args=(1 / per_second, self._pause), daemon=True).start()

    def _churn(self, pause_s: float, stop: threading.Event) -> None:
        while not stop.wait(pause_s):
            name = self._others[self._changes % len(self._others)]
            self._changes += 1
            self._call("patch", name, {"metadata": {"labels": {"example.com/label-0": f"change-{self._changes}"}}})

    # -- reading

    def _reported(self) -> tuple[str, str]:
        """Return the state label, and the config that the status is about."""
        node = self._standin.store.get("nodes.", "", NODE) or {}
        meta = node.get("metadata", {})
        status = meta.get("annotations", {}).get(names.STATUS_ANNOTATION) or "{}"
        config = msgspec.json.decode(status, type=dict[str, Any]).get("config", "")
        return meta.get("labels", {}).get(names.STATE_LABEL, ""), str(config)

    def until(self, config: str, patience_s: float) -> float:
        """Return the seconds until the agent reports success for a config. Raises AssertionError for a failure."""
        start = time.monotonic()
        while (reported := self._reported()) != ("success", config):
            failed = reported == ("failed", config)
            assert not failed, f"{config} failed"
            assert time.monotonic() - start < patience_s, f"{config}: not within {patience_s} s but {reported}"
            with self._standin.store.changed:
                self._standin.store.changed.wait(0.05)
        return time.monotonic() - start

    def request(self, config: str) -> float:
        """Label the node, and return the seconds until success."""
        self.label(config)
        return self.until(config, 60.0)

    def resources(self) -> dict[str, int]:
        """Return the kubelet's allocatable resources."""
        found: dict[str, int] = self._kubelet.allocatable
        return found

    def traffic(self) -> dict[str, Any]:
        """Return the agent's requests by verb and resource, its bytes, and changes of other nodes, since the start."""
        own = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
        requests = self._standin.control.requests.copy()
        counts = {f"{r.verb} {r.resource}": n for r, n in requests.items() if r.user == own}
        return {"requests": counts, "down": self._relay.down, "up": self._relay.up, "changes": self._changes}

    def drop(self) -> None:
        """End every watch."""
        self._standin.control.drop()


class _Relay:
    """A relay that counts bytes to and from a port of this host; ``down`` is towards the client."""

    def __init__(self, target: int) -> None:
        self.down = self.up = 0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            remote = socket.create_connection(("127.0.0.1", self._target))
            for end in (near, remote):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(near, remote, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(remote, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, down: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                if down:
                    self.down += len(chunk)
                else:
                    self.up += len(chunk)
                target.sendall(chunk)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
