"""VMs of a Rancher pool: what Rancher keeps of them, and whether they fit."""

from __future__ import annotations

import pytest

from aliquot.errors import ConfigError
from aliquot.kubernetes.virtual_machines.kubevirt import rancher
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import CLUSTER_LABEL, POOL_LABEL
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4A, A2_4Q, instance, machine, node

LABELS = {CLUSTER_LABEL: "blue", POOL_LABEL: "pool1"}
SENT = '{"vGPURequests":[{"name":"provisioned","deviceName":"nvidia.com/NVIDIA_A2-4Q"}]}'


def grown(count: int, *, free: int, cluster: str = "blue") -> Capacity:
    """Build a pool of which ``count`` VMs run, with ``free`` devices left."""
    running = tuple(instance(f"{cluster}-pool1-{n}", "n1", A2_4Q, labels=LABELS) for n in range(count))
    machines = tuple(machine(each.name, A2_4Q, labels=LABELS) for each in running)
    return measure(ClusterObservation((node("n1", {A2_4Q: count + free}),), vms=machines, instances=running))


def blue(machines: int, counts: dict[str, int] | None = None, name: str = "pool1") -> rancher.MachinePool:
    return rancher.machine_pool("default", "blue", machines, counts or {A2_4Q: 1}, name)


@pytest.mark.parametrize(
    ("vgpus", "host", "expected"),
    [
        (SENT, "", {A2_4Q: 1}),
        ('{"vGPURequests":[{"name":"","deviceName":"a"},{"name":"","deviceName":"b"}]}', "", {"a": 1, "b": 1}),
        ('{"vGPURequests":[{"deviceName":"a"},{"deviceName":"a"}]}', "", {"a": 2}),
        ('{"vGPURequests":null}', '{"hostDevices":[{"name":"x","deviceName":"c"}]}', {"c": 1}),
        ("", '{"hostDeviceRequests":[{"name":"x","deviceName":"c"}]}', {"c": 1}),
        ("{}", "{}", {}),
        ("", "", {}),
    ],
)
def test_what_the_machine_driver_takes_is_read(vgpus: str, host: str, expected: dict[str, int]) -> None:
    assert rancher.requests(vgpus, host) == expected


@pytest.mark.parametrize("text", ["[]", "{", "x", '{"vGPURequests":[{"name":"a"}]}', '{"vGPURequests":{}}', "\ud800"])
def test_what_it_does_not_take_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="vgpuInfo cannot be read") as caught:
        rancher.requests(text)
    assert "vGPURequests" in caught.value.details[0]


def test_a_request_without_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="no deviceName"):
        rancher.requests('{"vGPURequests":[{"name":"a","deviceName":""}]}')


def test_three_machines_with_one_vgpu_are_refused() -> None:
    # rancher/dashboard#10906: a cluster of three was accepted, and its VMs were created again and again.
    found = rancher.fit_pools(grown(0, free=1), [blue(3)])
    assert not found.fits
    assert found.sentence.startswith(f"3 of {A2_4Q} are requested, 1 can still be allocated")


def test_scaling_counts_only_the_machines_to_come() -> None:
    # harvester#10455, #11591: running VMs of the same cluster were counted twice.
    assert rancher.fit_pools(grown(3, free=1), [blue(4)]).fits
    assert not rancher.fit_pools(grown(3, free=1), [blue(5)]).fits
    assert rancher.fit_pools(grown(3, free=0), [blue(3)]).fits
    assert rancher.fit_pools(grown(3, free=0), [blue(1)]).fits


def test_a_second_cluster_gets_what_the_first_left() -> None:
    # rancher/dashboard#10948.
    second = rancher.machine_pool("default", "green", 3, {A2_4Q: 1})
    assert not rancher.fit_pools(grown(3, free=1), [second]).fits
    assert rancher.fit_pools(grown(3, free=3), [second]).fits


def test_pools_of_a_cluster_are_judged_together() -> None:
    assert rancher.fit_pools(grown(0, free=3), [blue(2), blue(1, name="pool2")]).fits
    assert not rancher.fit_pools(grown(0, free=3), [blue(2), blue(2, name="pool2")]).fits


def test_a_machine_with_other_devices_will_be_replaced() -> None:
    nodes = (node("n1", {A2_4Q: 1, A2_4A: 1}),)
    running = (instance("blue-pool1-0", "n1", A2_4Q, labels=LABELS),)
    assert rancher.fit_pools(measure(ClusterObservation(nodes, instances=running)), [blue(1, {A2_4A: 1})]).fits
    assert len(rancher.missing_vms(measure(ClusterObservation(nodes, instances=running)), blue(1, {A2_4A: 1}))) == 1


def test_a_machine_that_got_a_part_counts_as_one() -> None:
    # It runs with one vGPU and waits for a second: it counts as one VM of the pool, not two and not none.
    nodes = (node("n1", {A2_4Q: 2}),)
    seen = ClusterObservation(
        nodes,
        vms=(machine("m", A2_4Q, A2_4Q, labels=LABELS),),
        instances=(instance("m", "n1", A2_4Q, labels=LABELS),),
    )
    assert rancher.missing_vms(measure(seen), blue(1, {A2_4Q: 2})) == ()


def test_a_pool_of_another_namespace_is_another_pool() -> None:
    assert len(rancher.missing_vms(grown(2, free=0), rancher.machine_pool("other", "blue", 2, {A2_4Q: 1}))) == 2


@pytest.mark.parametrize(("cluster", "count"), [("", 1), ("blue", -1), ("blue", 10_000_000)])
def test_a_pool_that_cannot_be(cluster: str, count: int) -> None:
    with pytest.raises(ConfigError, match="machine"):
        rancher.machine_pool("default", cluster, count, {A2_4Q: 1})
