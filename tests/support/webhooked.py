"""An API server that calls our webhooks, which run as the controller runs them, in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.leader_election import LeaseTiming
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.controller.controller import Controller, ControllerPace
from aliquot.kubernetes.kinds.harvester import GROUP, KINDS, VERSION
from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import WEBHOOK, Values
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions
from support.cluster import Answer, Cluster
from support.kubevirt.objects import machine, machines
from support.kubevirt.players import VmCluster
from system.kubernetes.agent_rights import CONTROLLER, NS, manifests
from system.kubernetes.agent_rights import ROOT as DEPLOY

JSON = dict[str, Any]
MACHINES = DEPLOY / "kubernetes-machines"
QUICK = ControllerPace(LeaseTiming(lease_s=3, renew_s=2, retry_s=0.2), WatchTiming(refused_s=0.3, first_backoff_s=0.1))
ROOT = f"/apis/{GROUP}/{VERSION}"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
SECRET = f"/api/v1/namespaces/{NS}/secrets/{WEBHOOK}"


class Replica:
    """A controller. ``port`` is the port of its HTTPS server."""

    def __init__(self, config: Path, identity: str = "one", look_s: float = 0.3, **options: Any) -> None:
        self._config, self._identity = config, identity
        self._options = WebhookOptions(port=0, hosts=("localhost",), check_s=look_s, **options)
        self._ready = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with Api.connect(str(self._config), namespace=NS) as api:
            self.controller = Controller(
                api,
                identity=self._identity,
                pace=QUICK,
                kubevirt_namespace="harvester-system",
                webhook=self._options,
            )
            assert self.controller.webhook is not None
            self.port = self.controller.webhook.server.port
            self._task = asyncio.create_task(self.controller.run())
            self._ready.set()
            await asyncio.gather(self._task, return_exceptions=True)
            if not self._task.cancelled() and (error := self._task.exception()):
                self.failure = error

    @property
    def missing(self) -> str:
        webhook = self.controller.webhook
        return self.controller.pages["/readyz"]({}).body.decode() if webhook is None else webhook.missing

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join(20)
        assert not self._thread.is_alive()


class Bed:
    """A cluster with the manifests, whose controller has only their rights. ``ask`` writes as a given user and returns
    the answer, whether it is a refusal or not.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.apply(crds.all_definitions())
        for kind in KINDS:
            path = f"{ROOT}/{kind.TYPE.plural}"
            cluster.wait(partial(_served, cluster, path), path, 30)
        self.machines = VmCluster(cluster)
        self.machines.install({"pciHostDevices": [], "mediatedDevices": []})
        hooks = "WebhookConfiguration"
        cluster.apply([each for each in manifests(MACHINES) if not each["kind"].endswith(hooks)])
        self.config = cluster.kubeconfig(NS, CONTROLLER)
        self.replicas: list[Replica] = []

    def replica(self, identity: str = "one", **options: Any) -> Replica:
        self.replicas.append(Replica(self.config, identity, **options))
        return self.replicas[-1]

    def close(self) -> None:
        for each in self.replicas:
            each.close()
        self.machines.close()

    def register(self, replica: Replica) -> None:
        """Register the configurations by URL, and wait until the replica is ready."""
        for each in webhooks.configurations(Values(namespace=NS), url=f"https://localhost:{replica.port}"):
            self.cluster.apply(each)
        self.cluster.wait(lambda: replica.failure or not replica.missing, "the webhooks to be ready", 20)
        assert replica.failure is None, replica.failure
        self.cluster.wait(lambda: all(self.bundles()), "the authority in the configurations", 20)

    def bundles(self) -> list[str]:
        plurals = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
        found = [self.cluster.get(f"{HOOKS}/{plural}/{WEBHOOK}") for plural in plurals]
        return [hook["clientConfig"].get("caBundle", "") for each in found for hook in each.get("webhooks", [])]

    def asked(self) -> None:
        """Wait until the API server calls the webhooks: a real one takes a moment to read a configuration."""
        body = machine("probe", gpus=["nobody.example/has-this"])

        def refuses() -> bool:
            return self.ask("POST", f"{machines('default')}?dryRun=All", body).status == 403

        self.cluster.wait(refuses, "the API server to ask the webhook", 30)

    def ask(self, method: str, path: str, body: JSON | None = None, token: str | None = None) -> Answer:
        where = path if path.startswith("/") else f"{ROOT}/{path}"
        return self.cluster.request(method, where, body, token=token)

    def make(self, plural: str, body: JSON) -> None:
        """Create an object with its status, before webhooks are registered."""
        self.cluster.must("POST", f"{ROOT}/{plural}", of_kind(plural, body))
        if "status" in body:
            self.cluster.must("PATCH", f"{ROOT}/{plural}/{body['metadata']['name']}/status", {"status": body["status"]})


def of_kind(plural: str, body: JSON) -> JSON:
    kind = next(each.TYPE for each in KINDS if each.TYPE.plural == plural)
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def _served(cluster: Cluster, path: str) -> bool:
    return cluster.request("GET", path).status == 200
