"""The cost of what a pod would get on a node."""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot.kubernetes.dra.extender.demand import pod_demand
from aliquot.kubernetes.dra.extender.messages import ScheduledPod
from aliquot.kubernetes.dra.extender.priorities import node_priorities
from aliquot.kubernetes.dra.extender.published_node import Cost, PublishedNode
from aliquot.kubernetes.dra.model.device import PLACEMENT_SIZE, PLACEMENT_START
from aliquot.kubernetes.dra.model.objects import DeviceAttribute, DeviceTaint, ResourceSlice
from support import factory
from unit.kubernetes.dra.extender.requests import CLASSES, claim, exactly, pod, published
from unit.kubernetes.dra.model.nodes import A100, NAMING

FULL = ("gpu-0-mig-4g20gb-5-0", "gpu-0-mig-3g20gb-9-4")
TWO = factory.inventory(f"{A100}*2", enabled=True)


def node(*allocated: str, slices: tuple[ResourceSlice, ...] | None = None) -> PublishedNode:
    return PublishedNode(
        slices if slices is not None else published(allocated=allocated), {(NAMING.driver, name) for name in allocated}
    )


def cost(here: PublishedNode, *requests: object, body: ScheduledPod | None = None, **devices: object) -> Cost | None:
    claims = (claim(*requests, **devices),) if requests else ()  # type: ignore[arg-type]
    return here.cost(pod_demand(body or pod(), claims, CLASSES), "fragmentation")


def test_nothing_fits_on_a_full_gpu() -> None:
    assert cost(node(*FULL), exactly("1g.5gb")) is None
    assert cost(node(), exactly("1g.5gb")) is not None
    assert cost(node(slices=()), exactly("1g.5gb")) is None


def test_nodes_are_not_rated_when_it_is_late() -> None:
    demand = pod_demand(pod({"nvidia.com/mig-1g.5gb": "1"}), (), CLASSES)
    with pytest.raises(TimeoutError):
        node_priorities({"n1": node()}, demand, "fragmentation", lambda: True)


def test_a_device_is_given_once() -> None:
    limits = pod({"nvidia.com/mig-7g.40gb": "1"})
    assert cost(node(), body=limits) is not None
    assert cost(node(), exactly("7g.40gb"), body=limits) is None
    assert cost(node(), exactly("3g.20gb", count=2)) is not None
    assert cost(node(), exactly("3g.20gb", count=3)) is None


def test_devices_of_one_gpu_are_found_where_the_first_try_does_not_fit() -> None:
    """The first 3g that fits is on the GPU with one left, the pair is on the other."""
    taken = ("gpu-0-mig-4g20gb-5-0",)
    here = node(*taken, slices=published(inventory=TWO, allocated=taken))
    same = [{"matchAttribute": f"{NAMING.driver}/parentUUID"}]
    pair = (exactly("3g.20gb", "a"), exactly("3g.20gb", "b"))
    free, apart = cost(here, *pair, constraints=same), cost(here, *pair)
    assert free is not None
    assert apart is not None
    assert free > apart
    missing = [{"matchAttribute": "example.com/none"}]
    assert cost(here, exactly("3g.20gb"), constraints=missing) is None


def test_a_tainted_device_needs_a_toleration() -> None:
    taint = DeviceTaint("k", "NoSchedule", "v")

    def tainted(part: ResourceSlice, effect: str) -> ResourceSlice:
        found = msgspec.structs.replace(taint, effect=effect)
        devices = tuple(msgspec.structs.replace(each, taints=(found,)) for each in part.spec.devices)
        return msgspec.structs.replace(part, spec=msgspec.structs.replace(part.spec, devices=devices))

    here = node(slices=tuple(tainted(part, "NoSchedule") for part in published()))
    assert cost(here, exactly("1g.5gb")) is None
    for good in ({"operator": "Exists"}, {"key": "k", "value": "v"}, {"key": "k", "operator": "Exists"}):
        assert cost(here, exactly("1g.5gb", tolerations=[good])) is not None
    for bad in ({"key": "k", "value": "w"}, {"key": "x", "operator": "Exists"}, {"key": "k", "effect": "NoExecute"}):
        assert cost(here, exactly("1g.5gb", tolerations=[bad])) is None
    assert cost(node(slices=tuple(tainted(part, "None") for part in published())), exactly("1g.5gb")) is not None


def test_the_first_alternative_is_preferred_on_every_node() -> None:
    several = {"name": "x", "firstAvailable": [exactly("7g.40gb")["exactly"], exactly("1g.5gb")["exactly"]]}
    demand = pod_demand(pod(), (claim(several),), CLASSES)
    nodes = {"used": node("gpu-0-mig-1g5gb-19-6"), "empty": node(), "full": node(*FULL), "none": None}
    assert node_priorities(nodes, demand, "fragmentation") == {"used": 9, "empty": 10, "full": 0, "none": 0}


@pytest.mark.parametrize("place", [(-1, 1), (0, 1 << 60), (1 << 60, 1), (0, -5)])
def test_a_placement_that_no_gpu_has_is_no_placement(place: tuple[int, int]) -> None:
    start, size = (DeviceAttribute(int_value=each) for each in place)

    def odd(part: ResourceSlice) -> ResourceSlice:
        more = {PLACEMENT_START: start, PLACEMENT_SIZE: size}
        devices = tuple(msgspec.structs.replace(d, attributes=d.attributes | more) for d in part.spec.devices)
        return msgspec.structs.replace(part, spec=msgspec.structs.replace(part.spec, devices=devices))

    slices = tuple(map(odd, published()))
    assert cost(node(slices=slices), exactly("1g.5gb")) == (0, 0, 1)
    assert cost(node("gpu-0-mig-1g5gb-19-6", slices=slices), exactly("1g.5gb")) == (0, 0, 1)


def test_a_search_without_end_is_given_up() -> None:
    eight = published(inventory=factory.inventory(f"{A100}*8", enabled=True))
    began = time.process_time()
    assert cost(node(slices=eight), exactly("1g.5gb", "a", count=8), exactly("7g.40gb", "b", count=8)) is None
    assert time.process_time() - began < 2


def test_a_node_keeps_few_costs() -> None:
    here = node()
    for count in range(1, 33):
        for profile in ("1g.5gb", "2g.10gb", "3g.20gb"):
            cost(here, exactly(profile, count=count))
    assert len(here._costs) <= 64
    assert cost(here, exactly("1g.5gb")) == cost(node(), exactly("1g.5gb"))


def test_more_than_ten_costs_share_the_lowest_priority() -> None:
    class Costly(PublishedNode):
        def __init__(self, cost: int) -> None:
            self.found = (cost,)

        def cost(self, demand: object, score: object) -> Cost:
            return self.found

    nodes = {f"n{n}": Costly(n // 2) for n in range(30)}
    found = node_priorities(nodes, pod_demand(pod(), (), CLASSES), "fragmentation")
    assert [found[f"n{n}"] for n in (0, 1, 2, 17, 18, 29)] == [10, 10, 9, 2, 1, 1]
