"""The repair of definitions against an API server, with the rights and policies of the manifests."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.virtual_machines.controller.definition_repair import DefinitionRepair, RepairTiming
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.metrics.controller_metrics import ControllerMetrics
from support.cluster import Cluster
from system.kubernetes.agent_rights import CONTROLLER, NS, ROOT, manifests
from system.kubernetes.test_controller_devices import until

JSON = dict[str, Any]
MANIFESTS = ROOT / "kubernetes-machines"
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MIG = "migconfigurations.devices.harvesterhci.io"
OURS = ("conditions", "observedGeneration", "appliedBoot", "differences")
WATCH = WatchTiming(refused_s=0.3, first_backoff_s=0.1)
QUICK = RepairTiming(WATCH, calm_s=30.0, pause=Backoff(first=1.5, longest=60.0), rights_s=0.3)


@pytest.fixture
def bed(cluster: Cluster) -> Cluster:
    cluster.apply(crds.definitions())
    cluster.apply([each for each in manifests(MANIFESTS) if not each["kind"].endswith("WebhookConfiguration")])
    return cluster


def overwrite(cluster: Cluster, name: str = MIG, **newer: JSON) -> None:
    """Write a definition as pcidevices does: without our fields. ``newer`` are fields of the spec that it adds."""
    now = cluster.get(f"{PATH}/{name}")
    schema = now["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for field in OURS:
        schema["status"]["properties"].pop(field, None)
    schema["status"].pop("x-kubernetes-preserve-unknown-fields", None)
    schema["spec"]["properties"] |= newer
    now["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "New", "type": "string", "jsonPath": ".spec.new"}
    ]
    cluster.must("PUT", f"{PATH}/{name}", now)


def fields(cluster: Cluster, part: str, name: str = MIG) -> set[str]:
    version = cluster.get(f"{PATH}/{name}")["spec"]["versions"][0]
    return set(version["schema"]["openAPIV3Schema"]["properties"][part]["properties"])


def events(cluster: Cluster) -> list[str]:
    return [each["reason"] for each in cluster.get("/api/v1/namespaces/default/events")["items"]]


@asynccontextmanager
async def repairing(cluster: Cluster, metrics: ControllerMetrics, timing: RepairTiming = QUICK) -> AsyncIterator[None]:
    async with Api.connect(str(cluster.kubeconfig(NS, CONTROLLER)), namespace=NS) as api:
        repair = DefinitionRepair(api, lambda: True, metrics, timing=timing)
        task = asyncio.create_task(repair.run())
        repair.wake()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_fields_that_pcidevices_dropped_are_back_and_its_own_stay(bed: Cluster) -> None:
    overwrite(bed, policy={"type": "string"})
    metrics = ControllerMetrics()

    async def main() -> None:
        async with repairing(bed, metrics):
            await until(lambda: set(OURS) <= fields(bed, "status"), "our fields")
            await until(lambda: "DefinitionRepaired" in events(bed), "the event")
            await asyncio.sleep(0.6)

    asyncio.run(main())
    assert "policy" in fields(bed, "spec")
    columns = [c["name"] for c in bed.get(f"{PATH}/{MIG}")["spec"]["versions"][0]["additionalPrinterColumns"]]
    assert columns == ["New", "Node Name", "Address", "Enabled", "Status", "Message"]
    assert metrics.written == 1, "complete definitions are not written"


def test_the_second_repair_waits_and_says_so(bed: Cluster) -> None:
    metrics = ControllerMetrics()

    async def main() -> None:
        async with repairing(bed, metrics):
            overwrite(bed)
            await until(lambda: set(OURS) <= fields(bed, "status"), "the first repair")
            overwrite(bed)
            await until(lambda: "DefinitionOverwritten" in events(bed), "the warning")
            await asyncio.sleep(0.5)
            assert not set(OURS) & fields(bed, "status"), "the second repair waits"
            await until(lambda: set(OURS) <= fields(bed, "status"), "the second repair")

    asyncio.run(main())
    page = metrics.page.text().decode()
    assert 'aliquot_controller_definitions_overwritten_total{kind="MigConfiguration"} 1.0' in page


def test_without_the_right_nothing_is_watched_or_written(bed: Cluster) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/aliquot-controller-definitions"
    kept = bed.get(role)
    bed.must("DELETE", role)
    overwrite(bed)
    metrics = ControllerMetrics()

    async def main() -> None:
        async with repairing(bed, metrics):
            await asyncio.sleep(1.0)
            assert not set(OURS) & fields(bed, "status")
            fresh = copy.deepcopy(kept)
            fresh["metadata"] = {"name": kept["metadata"]["name"]}
            bed.apply(fresh)
            await until(lambda: set(OURS) <= fields(bed, "status"), "the repair, once it may")

    asyncio.run(main())


HOOK = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example"}},
}
REFUSED: dict[str, Callable[[JSON], object]] = {
    "a conversion webhook": lambda spec: spec.update(conversion=HOOK),
    "another name": lambda spec: spec["names"].update(shortNames=["x"]),
    "a version less": lambda spec: spec["versions"].pop(),
    "a version that is not served": lambda spec: spec["versions"][0].update(served=False),
}
"""Writes that are valid: a real server refuses an invalid one before it asks the policies."""


@pytest.mark.parametrize("what", REFUSED)
def test_the_controllers_token_may_only_add_to_versions(bed: Cluster, what: str) -> None:
    live = bed.get(f"{PATH}/{MIG}")
    live["spec"]["versions"].append({**live["spec"]["versions"][0], "name": "v2", "storage": False})
    live = bed.must("PUT", f"{PATH}/{MIG}", live)
    REFUSED[what](live["spec"])
    token = bed.service_account_token(NS, CONTROLLER)
    body = {"spec": live["spec"]}
    # A real server takes a moment to follow new policies.
    bed.wait(lambda: bed.request("PATCH", f"{PATH}/{MIG}?dryRun=All", body, token=token).status == 403, "the refusal")
    answer = bed.request("PATCH", f"{PATH}/{MIG}", body, token=token)
    assert "may add to the versions" in answer.body["message"], answer
