"""Capacity as pollers read it: over TLS, beside the webhooks, while VMs come and go."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL
from support.cluster import Cluster
from support.kubevirt.objects import machine, machines
from support.webhooked import Bed, Replica

Q = "nvidia.com/NVIDIA_A2-4Q"
VMS = machines("default")
SENT = '{"vGPURequests":[{"name":"provisioned","deviceName":"nvidia.com/NVIDIA_A2-4Q"}]}'


class Poller:
    """A client that trusts only the authority of the webhook configurations, as the page on capacity states."""

    def __init__(self, bed: Bed, replica: Replica) -> None:
        self._port = replica.port
        authority = base64.b64decode(bed.bundles()[0]).decode()
        self._context = ssl.create_default_context(cadata=authority)

    def get(self, path: str, method: str = "GET", **query: str) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection("localhost", self._port, timeout=10, context=self._context)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path)
            answer = connection.getresponse()
            return answer.status, _decoded(answer.read())
        finally:
            connection.close()

    def allocatable(self) -> int:
        rows = self.get("/v1/capacity", resource=Q)[1]["resources"]
        return int(rows[0]["allocatable"]) if rows else -1


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode()


@pytest.fixture
def bed(cluster: Cluster) -> Iterator[Bed]:
    found = Bed(cluster)
    amounts = {Q: "3", "cpu": "32", "memory": "64Gi"}
    cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.must("PATCH", "/api/v1/nodes/n1/status", {"status": status})
    entry = {"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": Q, "externalResourceProvider": True}
    settings = {"spec": {"configuration": {"permittedHostDevices": {"mediatedDevices": [entry]}}}}
    cluster.must("PATCH", "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt", settings)
    yield found
    found.close()


def ready(bed: Bed) -> Poller:
    replica = bed.replica()
    bed.register(replica)
    bed.asked()
    return Poller(bed, replica)


def test_figures_follow_machines_and_a_machine_too_many_is_refused_with_them(bed: Bed) -> None:
    poller = ready(bed)
    assert poller.allocatable() == 3
    for n in range(3):
        bed.cluster.must("POST", VMS, machine(f"vm-{n}", [Q]))
        assert poller.allocatable() == 2 - n, "an admitted machine counts at once"
    refused = bed.ask("POST", VMS, machine("vm-3", [Q]))
    assert refused.status == 403
    assert f"1 of {Q} is requested, 0 can still be allocated (3 in the cluster" in refused.body["message"]
    assert bed.ask("POST", VMS, machine("vm-4", [Q], strategy="Halted")).status == 201
    bed.cluster.must("DELETE", f"{VMS}/vm-0")
    bed.cluster.wait(lambda: poller.allocatable() == 1, "the deleted machine's to be free")
    bed.cluster.must("PATCH", f"{VMS}/vm-1", {"spec": {"runStrategy": "Halted"}})
    bed.cluster.wait(lambda: poller.allocatable() == 2, "the stopped machine's to be free")


def test_the_way_that_rancher_goes(bed: Bed) -> None:
    poller = ready(bed)
    status, cluster = poller.get("/v1/harvester/cluster/local")
    assert status == 200
    status, figures = poller.get(cluster["links"]["deviceCapacity"])
    assert (status, figures) == (200, {"cpu": "32", "memory": "64Gi", Q: "3"})


def test_an_older_rancher_lets_everything_through_and_is_stopped_at_admission(bed: Bed) -> None:
    # Its form has no counts: three nodes with one vGPU each, of which one is left (rancher/dashboard#10906).
    poller = ready(bed)
    for n in range(2):
        bed.cluster.must("POST", VMS, machine(f"other-{n}", [Q]))
    answers = []
    for n in range(3):
        body = machine(f"blue-pool1-{n}", [Q], strategy="RerunOnFailure")
        body["metadata"]["labels"] = {CLUSTER_LABEL: "blue"}
        answers.append(bed.ask("POST", VMS, body).status)
    assert answers == [201, 403, 403]
    asked = {"vgpuInfo": SENT, "cluster": "blue", "namespace": "default"}
    assert poller.get("/v1/capacity/fit", machines="1", **asked)[1]["fits"] is True
    assert poller.get("/v1/capacity/fit", machines="3", **asked)[1]["fits"] is False


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/v1/capacity/fit", {}, 400),
        ("/v1/capacity/fit", {"resource": Q, "count": "\u0663"}, 400),
        ("/v1/capacity/fit", {"resource": "A2-4Q"}, 400),
        ("/v1/capacity/fit", {"vgpuInfo": "{" * 5000}, 400),
        ("/v1/capacityy", {}, 404),
        ("/v1/harvester/cluster/other", {}, 404),
    ],
)
def test_bad_questions_break_nothing(bed: Bed, path: str, query: dict[str, str], status: int) -> None:
    poller = ready(bed)
    assert poller.get(path, **query)[0] == status
    assert poller.get("/v1/capacity", method="POST")[0] == 405
    assert poller.allocatable() == 3
