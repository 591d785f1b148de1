"""Pages for pollers, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.controller.capacity_metrics import CLAIMED, CapacityCollector
from aliquot.kubernetes.virtual_machines.controller.capacity_pages import CapacityPages
from aliquot.kubernetes.virtual_machines.controller.claim_informers import VmClaimInformers
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL, VmDemand
from unit.kubernetes.virtual_machines.kubevirt.claiming import claim_template, claiming_instance
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4Q, instance, machine, node

SENT = '{"vGPURequests":[{"name":"provisioned","deviceName":"nvidia.com/NVIDIA_A2-4Q"}]}'


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock | None = None) -> VmClusterInformers:
    """Build one node with 4 vGPUs, and a VM of cluster blue that has one of them."""
    informers = VmClusterInformers(Informer(Node), Informer(SRIOVGPUDevice), lambda: None, clock=clock or Clock())
    labels = {CLUSTER_LABEL: "blue"}
    for informer in informers.all_informers:
        informer.apply(FullList(()))
    informers.nodes.apply(FullList((node("n1", {A2_4Q: 4}),)))
    informers.vms.apply(FullList((machine("a", A2_4Q, labels=labels),)))
    informers.instances.apply(FullList((instance("a", "n1", A2_4Q, labels=labels),)))
    return informers


def ask(informers: VmClusterInformers, path: str, **query: str) -> tuple[int, Any]:
    status, kind, body, _ = CapacityPages(informers, VmClaimInformers(informers)).by_path[path](query)
    assert kind == "application/json"
    return status, msgspec.json.decode(body)


def test_what_is_left() -> None:
    status, body = ask(made(), "/v1/capacity", resource=A2_4Q)
    assert status == 200
    assert [(each["resource"], each["allocatable"]) for each in body["resources"]] == [(A2_4Q, 3)]


@pytest.mark.parametrize("word", ["cluster", "clusters"])
def test_what_rancher_asks(word: str) -> None:
    environment = made()
    assert ask(environment, f"/v1/harvester/{word}")[1]["data"][0]["id"] == "local"
    status, body = ask(environment, f"/v1/harvester/{word}/local")
    link = body["links"]["deviceCapacity"]
    path, _, query = link.partition("?")
    assert (status, query) == (200, "link=deviceCapacity")
    assert ask(environment, path, link="deviceCapacity") == (200, {A2_4Q: "3"})


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({"resource": A2_4Q, "count": "3"}, True),
        ({"resource": A2_4Q, "count": "4"}, False),
        ({"resource": A2_4Q, "machines": "3"}, True),
        ({"resource": A2_4Q, "machines": "4"}, False),
        ({"vgpuInfo": SENT, "cluster": "blue", "machines": "4"}, True),
        ({"vgpuInfo": SENT, "cluster": "blue", "machines": "5"}, False),
        ({"vgpuInfo": SENT, "cluster": "green", "machines": "4"}, False),
        ({"hostDeviceInfo": '{"hostDevices":[{"deviceName":"nvidia.com/NO"}]}'}, False),
    ],
)
def test_whether_machines_fit(query: dict[str, str], fits: bool) -> None:
    status, body = ask(made(), "/v1/capacity/fit", **query)
    assert (status, body["kind"], body["fits"]) == (200, "Fit", fits)
    assert bool(body["message"]) is not fits


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "no device is requested"),
        ({"resource": A2_4Q, "count": "x"}, "count=x is not a number"),
        ({"resource": A2_4Q, "count": "-1"}, "not a number"),
        ({"resource": A2_4Q, "machines": "9999999"}, "not a number"),
        ({"resource": A2_4Q, "machines": "5000"}, "5000 machines: the number must be 0 to 1000"),
        ({"vgpuInfo": "{"}, "vgpuInfo cannot be read"),
        ({"vgpuinfo": SENT}, "vgpuinfo: unknown parameter"),
    ],
)
def test_an_invalid_question_is_reported(query: dict[str, str], message: str) -> None:
    status, body = ask(made(), "/v1/capacity/fit", **query)
    assert (status, body["kind"]) == (400, "Error")
    assert message in body["message"]


@pytest.mark.parametrize(
    "path", ["/v1/capacity", "/v1/capacity/fit", "/v1/harvester/cluster", "/v1/harvester/cluster/local"]
)
def test_before_everything_was_read_zero_is_not_reported(path: str) -> None:
    environment = made()
    environment.instances.synced = False
    status, body = ask(environment, path, resource=A2_4Q)
    assert (status, body["kind"]) == (503, "Error")
    environment.instances.unavailable = "user x lacks permission to list virtualmachineinstances.kubevirt.io"
    assert ask(environment, path, resource=A2_4Q)[1]["message"].startswith("user x lacks permission")


def test_a_machine_that_was_let_in_counts_until_it_is_seen_or_given_up() -> None:
    clock = Clock()
    environment = made(clock)
    environment.reserve(VmDemand("default", "b", {A2_4Q: 2}))
    assert environment.capacity().resources[A2_4Q].allocatable == 1
    clock.now += 60
    assert environment.capacity().resources[A2_4Q].allocatable == 3
    environment.reserve(VmDemand("default", "b", {A2_4Q: 2}))
    environment.vms.apply(ObjectChanged(machine("b", A2_4Q, A2_4Q)))
    clock.now += 60
    assert environment.capacity().resources[A2_4Q].allocatable == 1


def test_a_machine_that_was_let_in_and_deleted_counts_no_more() -> None:
    environment = made()
    environment.reserve(VmDemand("default", "b", {A2_4Q: 2}))
    environment.vms.apply(ObjectChanged(machine("b", A2_4Q)))
    environment.vms.apply(ObjectDeleted(machine("b", A2_4Q)))
    assert environment.capacity().resources[A2_4Q].allocatable == 3


def test_a_machine_that_was_seen_and_then_asks_for_less_is_not_held_to_its_admission() -> None:
    environment = made()
    environment.reserve(VmDemand("default", "b", {A2_4Q: 2}))

    def reported(*resources: str, **more: Any) -> int:
        environment.vms.apply(ObjectChanged(machine("b", *resources, **more)))
        return environment.capacity().resources[A2_4Q].allocatable

    assert reported(A2_4Q) == 1, "an older state of it: the admitted devices are still to come"
    assert reported(A2_4Q, A2_4Q) == 1
    assert reported(A2_4Q) == 2
    assert reported(A2_4Q, strategy="Halted") == 3


def test_a_stopped_machine_that_was_let_start_counts_before_it_shows() -> None:
    environment = made()
    environment.reserve(VmDemand("default", "b", {A2_4Q: 1}))
    environment.vms.apply(ObjectChanged(machine("b", A2_4Q, strategy="Halted")))
    assert environment.capacity().resources[A2_4Q].allocatable == 2


def test_figures_for_prometheus_are_those_of_the_moment() -> None:
    environment, registry = made(), CollectorRegistry()
    claims = VmClaimInformers(environment)
    registry.register(CapacityCollector(environment, claims))
    name = "aliquot_controller_vm_devices"
    assert registry.get_sample_value(name, {"resource": A2_4Q, "what": "allocatable"}) == 3
    environment.reserve(VmDemand("default", "b", {A2_4Q: 1}))
    assert registry.get_sample_value(name, {"resource": A2_4Q, "what": "allocatable"}) == 2
    claimed = {"device_class": "vgpu", "what": "allocated"}
    assert registry.get_sample_value(CLAIMED, claimed) is None
    read_claims(environment, claims)
    assert registry.get_sample_value(CLAIMED, claimed) == 1
    environment.nodes.synced = False
    assert generate_latest(registry) == b""


def test_the_page_has_no_classes_until_claims_are_read() -> None:
    environment = made()
    claims = VmClaimInformers(environment)
    page = CapacityPages(environment, claims).by_path["/v1/capacity"]
    assert "deviceClasses" not in msgspec.json.decode(page({})[2])
    read_claims(environment, claims)
    entry = {"deviceClass": "vgpu", "allocated": 1, "pending": 0, "stopped": 0}
    found = msgspec.json.decode(page({"resource": "vgpu"})[2])
    assert found["deviceClasses"] == [entry | {"nodes": [{"node": "n1", "allocated": 1}]}]
    assert found["resources"] == []


def read_claims(environment: VmClusterInformers, claims: VmClaimInformers) -> None:
    """Let the watches deliver a VM with a claim of a template."""
    environment.instances.apply(FullList((claiming_instance("c", "n1", template="desktop"),)))
    claims.claims.apply(FullList(()))
    claims.templates.apply(FullList((claim_template("desktop", "vgpu"),)))
