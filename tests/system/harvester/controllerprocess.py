"""The real controller as a process: with the rights of its manifests, and its webhooks registered by URL."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import CONTROLLER, Values
from aliquot.kubernetes.virtual_machines.webhook.certificates import renewed_bundle
from support import forkserver
from support.cluster import Cluster
from support.kubevirt.objects import machine, machines
from system.kubernetes.agent_rights import NS

JSON = dict[str, Any]
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/aliquot-webhook"


class ControllerProcess:
    """A process of ``aliquot controller --webhook-port``. Its certificate for ``localhost`` is mounted, as
    cert-manager's is, and signed by ``authority``.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._config = cluster.kubeconfig(NS, CONTROLLER)
        self._log = folder / "controller.log"
        self._certificates = folder / "certificates"
        self._certificates.mkdir()
        made = renewed_bundle(None, ("localhost",), dt.datetime.now(dt.UTC))
        assert made is not None
        parts = {"tls.crt": made.server.certificate, "tls.key": made.server.key, "ca.crt": made.trusted}
        for name, text in parts.items():
            (self._certificates / name).write_bytes(text)
        self.authority = made.trusted.decode()
        self.port = 0
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the controller, and wait until it answers reviews and the API server calls it."""
        self.port = self.port or free_port()
        words = ["controller", "--kubeconfig", str(self._config), "--namespace", NS, "--port", "-1"]
        words += ["--kubevirt-namespace", "harvester-system", "--identity", "the-controller"]
        words += ["--webhook-port", str(self.port), "--webhook-cert-dir", str(self._certificates)]
        with open(self._log, "ab") as log:
            self.process = forkserver.Popen(
                [sys.executable, "-m", "aliquot", *words],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for each in webhooks.configurations(Values(namespace=NS), url=f"https://localhost:{self.port}"):
            self.cluster.apply(each)
        self.cluster.wait(self._asked, "the webhooks to answer", 60)

    def _asked(self) -> bool:
        """Report whether the controller refuses a VM with a device that no node has."""
        assert self.process is not None
        assert self.process.poll() is None, f"the controller ended\n{self.log()[-3000:]}"
        body = machine("probe", gpus=["nobody.example/has-this"])
        return self.cluster.request("POST", f"{machines('default')}?dryRun=All", body).status == 403

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(30) == 0, self.log()[-3000:]
            self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
