"""The allocator in ``support/draallocator``, by what the API's documentation says of claims and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.draallocator import AllocationError, Published, allocate, allocated_devices, extended_claim, gather

JSON = dict[str, Any]
NODE = {"metadata": {"name": "n1", "labels": {"zone": "a"}}, "status": {"allocatable": {"plugin.example.com/gpu": "1"}}}
DRIVER = "gpu.example.com"
MINE = f"device.attributes['{DRIVER}']"


def device(name: str, kind: str = "small", *, gpu: int = 0, start: int = 0, size: int = 1, **more: Any) -> JSON:
    uses = {f"slice-{number}": {"value": "1"} for number in range(start, start + size)}
    return {
        "name": name,
        "attributes": {"kind": {"string": kind}, "gpu": {"int": gpu}, "driverVersion": {"version": "570.1.0"}},
        "capacity": {"memory": {"value": f"{5 * size}Gi"}},
        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": uses}],
        **more,
    }


def resource_slice(name: str, spec: JSON, *, pool: str = "p", count: int = 2, generation: int = 1, **more: Any) -> JSON:
    head = {"driver": DRIVER, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}
    return {"metadata": {"name": name}, "spec": {**head, "nodeName": "n1", **spec, **more}}


def counters(gpus: int = 1, size: int = 4, **more: Any) -> JSON:
    names = {f"slice-{number}": {"value": "1"} for number in range(size)}
    return resource_slice(
        "0", {"sharedCounters": [{"name": f"gpu-{gpu}", "counters": names} for gpu in range(gpus)]}, **more
    )


def gpu(number: int = 0) -> list[JSON]:
    """Return the devices of a GPU of four memory slices: four small ones and one that takes all."""
    parts = [device(f"g{number}-small-{start}", gpu=number, start=start) for start in range(4)]
    return [*parts, device(f"g{number}-large", "large", gpu=number, size=4)]


def published(*slices: JSON, allocated: frozenset[tuple[str, str, str]] = frozenset()) -> Published:
    texts = {
        "small": f"{MINE}.kind == 'small'",
        "large": f"{MINE}.kind == 'large'",
        "any": f"device.driver == '{DRIVER}'",
    }
    classes = {name: {"metadata": {"name": name}, "spec": {"selectors": cel(text)}} for name, text in texts.items()}
    return Published(slices, classes, allocated)


def cel(text: str) -> list[JSON]:
    return [{"cel": {"expression": text}}]


def claim(*requests: JSON, **more: Any) -> JSON:
    return {"spec": {"devices": {"requests": list(requests), **more}}}


def exactly(class_name: str, count: int = 1, name: str = "r", **more: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": class_name, "count": count, **more}}


def names(claims: Sequence[JSON], seen: Published, node: JSON = NODE) -> list[list[str]] | None:
    found = allocate(claims, node, seen)
    return None if found is None else [[row["device"] for row in rows] for rows in found]


ONE_GPU = (counters(), resource_slice("1", {"devices": gpu()}))
TWO_GPUS = (counters(2), resource_slice("1", {"devices": [*gpu(0), *gpu(1)]}))


def test_the_first_devices_that_fit_are_chosen() -> None:
    assert names([claim(exactly("small", 2))], published(*ONE_GPU)) == [["g0-small-0", "g0-small-1"]]
    assert names([claim(exactly("large"))], published(*ONE_GPU)) == [["g0-large"]]


def test_pools_go_by_name_slices_by_object_name_devices_as_listed() -> None:
    last = resource_slice("a", {"devices": [device("last")]}, pool="q", count=1)
    last["spec"]["devices"][0].pop("consumesCounters")
    rows = [last, counters(2, count=3), resource_slice("2", {"devices": gpu(0)}, count=3)]
    rows.append(resource_slice("1", {"devices": list(reversed(gpu(1)))}, count=3))
    assert [[one.name for one in pool.devices] for pool in gather(rows, NODE)] == [
        ["g1-large", "g1-small-3", "g1-small-2", "g1-small-1", "g1-small-0"] + [one["name"] for one in gpu(0)],
        ["last"],
    ]


def test_a_choice_is_taken_back_if_a_later_request_needs_the_device() -> None:
    """The first request takes the large device of GPU 0, but the second one can only be satisfied there."""
    requests = exactly("large", name="a"), exactly("small", name="b", selectors=cel(f"{MINE}.gpu == 0"))
    assert names([claim(*requests)], published(*TWO_GPUS)) == [["g1-large", "g0-small-0"]]
    assert names([claim(one) for one in requests], published(*TWO_GPUS)) == [["g1-large"], ["g0-small-0"]]


def test_allocated_devices_take_their_counters() -> None:
    held = frozenset({(DRIVER, "p", "g0-small-3")})
    assert names([claim(exactly("large"))], published(*ONE_GPU, allocated=held)) is None
    assert names([claim(exactly("large"))], published(*TWO_GPUS, allocated=held)) == [["g1-large"]]
    assert names([claim(exactly("small", 4))], published(*ONE_GPU, allocated=held)) is None


def test_a_counter_below_zero_closes_the_pool() -> None:
    held = frozenset({(DRIVER, "p", "g0-large"), (DRIVER, "p", "g0-small-0")})
    assert names([claim(exactly("small"))], published(*TWO_GPUS, allocated=held)) is None


def test_alternatives_are_tried_in_their_order() -> None:
    options = [{"name": name, "deviceClassName": name} for name in ("large", "small")]
    wanted = claim({"name": "r", "firstAvailable": options})
    held = frozenset({(DRIVER, "p", "g0-small-0")})
    assert allocate([wanted], NODE, published(*ONE_GPU)) == [
        [{"request": "r/large", "driver": DRIVER, "pool": "p", "device": "g0-large"}]
    ]
    assert names([wanted], published(*ONE_GPU, allocated=held)) == [["g0-small-1"]]


def test_constraints() -> None:
    two = exactly("small", 2)
    same, distinct = ({kind: f"{DRIVER}/gpu"} for kind in ("matchAttribute", "distinctAttribute"))
    whole = [
        {name: value for name, value in one.items() if name != "consumesCounters"} for one in (gpu(0)[0], *gpu(1)[:2])
    ]
    seen = published(resource_slice("1", {"devices": whole}, count=1))
    assert names([claim(two, constraints=[same])], seen) == [["g1-small-0", "g1-small-1"]]
    assert names([claim(two, constraints=[distinct])], seen) == [["g0-small-0", "g1-small-0"]]
    assert names([claim(two, constraints=[distinct])], published(*ONE_GPU)) is None
    requests = exactly("small", name="a"), exactly("small", name="b")
    only = {**distinct, "requests": ["a"]}
    assert names([claim(*requests, constraints=[only])], published(*ONE_GPU)) == [["g0-small-0", "g0-small-1"]]


def test_counters_of_forbidden_devices_are_lost_in_release_1_36() -> None:
    """GPU 1 is empty, but its devices were tried beside the last one of GPU 0 first, and the constraint forbade them.
    The same happens to the devices after one that is tainted.
    """
    mixed = (counters(2), resource_slice("1", {"devices": [gpu(0)[0], *gpu(1)]}))
    same = {"matchAttribute": f"{DRIVER}/gpu"}
    assert names([claim(exactly("small", 2), constraints=[same])], published(*mixed)) is None
    rows = gpu()
    rows[0]["taints"] = [{"key": "hidden", "effect": "NoSchedule"}]
    rows[1:4] = []
    wanted = claim(exactly("any"))
    assert names([wanted], published(counters(), resource_slice("1", {"devices": rows}))) is None
    last = resource_slice("1", {"devices": list(reversed(rows))})
    assert names([wanted], published(counters(), last)) == [["g0-large"]]


@pytest.mark.parametrize(
    ("effect", "toleration", "chosen"),
    [
        ("NoSchedule", None, "g0-small-1"),
        ("NoExecute", None, "g0-small-1"),
        ("None", None, "g0-small-0"),
        ("NoSchedule", {"key": "hidden", "operator": "Exists"}, "g0-small-0"),
        ("NoSchedule", {"operator": "Exists", "effect": "NoExecute"}, "g0-small-1"),
        ("NoSchedule", {"key": "hidden", "value": "yes"}, "g0-small-0"),
        ("NoSchedule", {"key": "hidden", "value": "no"}, "g0-small-1"),
    ],
)
def test_taints(effect: str, toleration: JSON | None, chosen: str) -> None:
    rows = gpu()
    rows[0]["taints"] = [{"key": "hidden", "value": "yes", "effect": effect}]
    seen = published(counters(), resource_slice("1", {"devices": rows}))
    wanted = exactly("small", tolerations=[toleration] if toleration else [])
    assert names([claim(wanted)], seen) == [[chosen]]


def test_all_devices_or_none() -> None:
    parts = (counters(), resource_slice("1", {"devices": gpu()[:4]}))
    every = claim(exactly("any", allocationMode="All"))
    assert names([every], published(*parts)) == [[f"g0-small-{start}" for start in range(4)]]
    assert names([every], published(*parts, allocated=frozenset({(DRIVER, "p", "g0-small-2")}))) is None
    assert names([every], published(*ONE_GPU)) is None, "the parts and the whole exclude each other"
    assert names([claim(exactly("large", allocationMode="All"))], published(*parts)) is None


def test_an_administrator_shares_a_device() -> None:
    whole = resource_slice("1", {"devices": [device("d0")]}, count=1)
    whole["spec"]["devices"][0].pop("consumesCounters")
    seen = published(whole, allocated=frozenset({(DRIVER, "p", "d0")}))
    assert names([claim(exactly("any"))], seen) is None
    found = allocate([claim(exactly("any", adminAccess=True))], NODE, seen)
    assert found == [[{"request": "r", "driver": DRIVER, "pool": "p", "device": "d0", "adminAccess": True}]]
    holds = {"status": {"allocation": {"devices": {"results": found[0]}}}}
    assert allocated_devices([holds, {}]) == frozenset()


def test_pools_that_cannot_be_used() -> None:
    twice = resource_slice("2", {"devices": gpu()[:1]}, count=3)
    rows = (counters(count=3), resource_slice("1", {"devices": gpu()}, count=3))
    assert [pool.fault for pool in gather(rows, NODE)] == ["incomplete"]
    assert [pool.fault for pool in gather((*rows, twice), NODE)] == ["invalid"]
    assert [pool.fault for pool in gather((resource_slice("1", {"devices": gpu()}, count=1),), NODE)] == ["invalid"]
    assert names([claim(exactly("small"))], published(*rows)) is None
    with pytest.raises(AllocationError, match="invalid resource pools"):
        names([claim(exactly("small"))], published(*rows, twice))
    with pytest.raises(AllocationError, match="currently being updated"):
        names([claim(exactly("small", allocationMode="All"))], published(*rows))
    newer = resource_slice("9", {"devices": [device("new", start=1)]}, count=1, generation=2, nodeName="n2")
    assert gather((*ONE_GPU, newer), NODE)[0].fault == "", "it is complete without the other node's slice"
    assert gather((ONE_GPU[1], newer), NODE) == [], "the pool is being replaced"


def test_nodes_of_slices_and_devices() -> None:
    def seen(**where: Any) -> int:
        return len(gather([resource_slice("1", {"devices": [{"name": "d"}]}, count=1, **where)], NODE))

    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    other = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}]
    assert seen() == 1
    assert seen(nodeName="n2") == 0
    assert seen(nodeName="", allNodes=True) == 1
    assert seen(nodeName="", nodeSelector={"nodeSelectorTerms": terms}) == 1
    assert seen(nodeName="", nodeSelector={"nodeSelectorTerms": other}) == 0
    rows = [{"name": "there", "nodeName": "n2"}, {"name": "here", "nodeName": "n1"}]
    own = resource_slice("1", {"devices": rows}, count=1, nodeName="", perDeviceNodeSelection=True)
    assert names([claim(exactly("any"))], published(own)) == [["here"]]


def test_errors_of_claims() -> None:
    with pytest.raises(AllocationError, match="device class missing does not exist"):
        names([claim(exactly("missing"))], published(*ONE_GPU))
    with pytest.raises(AllocationError, match="no such key: absent"):
        names([claim(exactly("any", selectors=cel(f"{MINE}.absent == 1")))], published(*ONE_GPU))
    with pytest.raises(AllocationError, match="limit of 32"):
        names([claim(exactly("any", 33))], published(*ONE_GPU))


def test_unknown_features_are_refused() -> None:
    shared = resource_slice("1", {"devices": [device("d", allowMultipleAllocations=True)]})
    with pytest.raises(NotImplementedError, match="allowMultipleAllocations"):
        names([claim(exactly("any"))], published(counters(), shared))


def test_extended_resources_become_requests() -> None:
    classes = [
        {"metadata": {"name": "small"}, "spec": {"extendedResourceName": "example.com/small"}},
        {"metadata": {"name": "plugin"}, "spec": {"extendedResourceName": "plugin.example.com/gpu"}},
    ]
    implicit = "deviceclass.resource.kubernetes.io/small"
    limits = [{"cpu": "1", "example.com/small": "2"}, {"plugin.example.com/gpu": "1", implicit: "1"}]
    pod = {"spec": {"containers": [{"resources": {"limits": one}} for one in limits]}}
    found = extended_claim(pod, classes, NODE)
    assert found is not None
    assert [
        (row["name"], row["exactly"]["deviceClassName"], row["exactly"]["count"])
        for row in found["spec"]["devices"]["requests"]
    ] == [("container-0-request-1", "small", 2), ("container-1-request-0", "small", 1)]
    assert extended_claim({"spec": {"containers": [{}]}}, classes, NODE) is None
