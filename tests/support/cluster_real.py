"""A real kube-apiserver with its etcd, for one test session.

The binaries are where Kubernetes' ``envtest`` has them: in ``KUBEBUILDER_ASSETS``, else ``/usr/local/kubebuilder/bin``.
No other part of a control plane runs: no controllers, no scheduler. A test does their work itself, on the stand-in and
here alike (``cluster.Cluster`` has methods for it).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

ADMIN_TOKEN = "admin-token"
ASSETS = "/usr/local/kubebuilder/bin"
NOT_ADMITTED = "ServiceAccount,TaintNodesByCondition"
"""Admission plugins left out: they wait for controllers (a default service account, a node that becomes ready)."""


def assets() -> Path | None:
    """Return the folder that holds both kube-apiserver and etcd, or None if there is none."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS", ASSETS))
    return folder if all(os.access(folder / name, os.X_OK) for name in ("kube-apiserver", "etcd")) else None


def free_ports(count: int) -> list[int]:
    """Return loopback ports on which no process listens."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class RealServer:
    """etcd and kube-apiserver under ``folder``, both on loopback."""

    def __init__(self, folder: Path, binaries: Path, *options: str) -> None:
        """Start both programs. ``options`` are for kube-apiserver, beside those of every test."""
        self.folder, self.binaries, self.options = folder, binaries, options
        folder.mkdir(parents=True, exist_ok=True)
        self.etcd_port, self.peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca = folder / "certs" / "apiserver.crt"
        key = folder / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        subprocess.run(
            ["openssl", "rsa", "-in", key, "-pubout", "-out", folder / "sa.pub"], check=True, capture_output=True
        )
        (folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,1,system:masters\n")
        self.etcd = self._spawn("etcd", self._etcd_arguments())
        self.apiserver = self._spawn("kube-apiserver", self._apiserver_arguments())

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [self.binaries / name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _etcd_arguments(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _apiserver_arguments(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certs'}",
            "--endpoint-reconciler-type=none",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--disable-admission-plugins={NOT_ADMITTED}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--profiling=false",
            *self.options,
        ]

    def alive(self) -> bool:
        """Report whether both processes still run."""
        return self.etcd.poll() is None and self.apiserver.poll() is None

    def log(self) -> str:
        """Return the end of the server's log, for the text of a failure."""
        return (self.folder / "kube-apiserver.log").read_text(errors="replace")[-3000:]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the server: it takes connections and never answers."""
        self.apiserver.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.apiserver.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server inside the block, and start it again with the same objects afterwards."""
        _end(self.apiserver, grace=0)
        try:
            yield
        finally:
            self.apiserver = self._spawn("kube-apiserver", self._apiserver_arguments())

    def compact(self) -> None:
        """Forget every version before the current one.

        Raises:
            FileNotFoundError: ``etcdctl`` is neither beside etcd nor in PATH
        """
        etcdctl = shutil.which("etcdctl", path=f"{self.binaries}{os.pathsep}{os.environ.get('PATH', '')}")
        if etcdctl is None:
            raise FileNotFoundError("etcdctl")
        endpoint = f"--endpoints=http://127.0.0.1:{self.etcd_port}"
        environment = {**os.environ, "ETCDCTL_API": "3"}
        status = subprocess.run(
            [etcdctl, endpoint, "get", "/", "--limit=1", "--keys-only", "-w", "fields"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        )
        revision = next(line.split(":")[1].strip() for line in status.stdout.splitlines() if '"Revision"' in line)
        subprocess.run([etcdctl, endpoint, "compact", revision], check=True, capture_output=True, env=environment)

    def close(self) -> None:
        """Stop the server before its database: without etcd it would keep its port for more than ten seconds."""
        _end(self.apiserver, grace=3)
        _end(self.etcd, grace=3)
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)


def _end(process: subprocess.Popen[bytes], *, grace: float) -> None:
    """Terminate it, and kill it after ``grace`` seconds."""
    if process.poll() is None and grace:
        process.terminate()
        end = time.monotonic() + grace
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    process.wait()
