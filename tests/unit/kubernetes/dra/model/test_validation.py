"""Every fault of a slice is found, with its code, and all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from aliquot.kubernetes.dra.model.objects import (
    CounterConsumption,
    DeviceAttribute,
    DeviceTaint,
    QuantityValue,
    ResourceSlice,
    ResourceSliceSpec,
    SharedCounterSet,
    SliceDevice,
)
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.slices import build_slices
from aliquot.kubernetes.dra.model.validation import FaultCode, InvalidSlicesError, find_faults, validate_slices
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, offered

replace = msgspec.structs.replace
Slices = tuple[ResourceSlice, ...]
NODE = "node-1"


def valid() -> Slices:
    offer = offered(factory.inventory(A100, enabled=True))
    return build_slices(Publication(offer.devices, offer.counter_sets), NAMING, NODE)


def with_spec(slices: Slices, number: int, **fields: object) -> Slices:
    spec: ResourceSliceSpec = replace(slices[number].spec, **fields)
    return (*slices[:number], replace(slices[number], spec=spec), *slices[number + 1 :])


def with_pool(slices: Slices, number: int, **fields: object) -> Slices:
    return with_spec(slices, number, pool=replace(slices[number].spec.pool, **fields))


def with_device(slices: Slices, **fields: object) -> Slices:
    first, *others = slices[1].spec.devices
    return with_spec(slices, 1, devices=(replace(first, **fields), *others))


def with_counters(slices: Slices, counters: dict[str, QuantityValue], name: str = "gpu-0-counter-set") -> Slices:
    return with_spec(slices, 0, shared_counters=(SharedCounterSet(name, counters),))


def counters_of(slices: Slices) -> dict[str, QuantityValue]:
    return slices[0].spec.shared_counters[0].counters


def text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string_value=value)


ONE = QuantityValue("1")
CASES: list[tuple[FaultCode, Callable[[Slices], Slices]]] = [
    ("ATTRIBUTE", lambda s: with_device(s, attributes={"a": DeviceAttribute()})),
    ("ATTRIBUTE", lambda s: with_device(s, attributes={"a": DeviceAttribute(bool_value=True, int_value=1)})),
    ("ATTRIBUTE", lambda s: with_device(s, attributes={"a": text("x" * 65)})),
    ("ATTRIBUTE", lambda s: with_device(s, attributes={"a": DeviceAttribute(version_value="535.183.01")})),
    ("ATTRIBUTE", lambda s: with_device(s, attributes={"a": DeviceAttribute(int_value=2**63)})),
    ("COUNTERS_WITH_DEVICES", lambda s: with_spec(s, 0, devices=(SliceDevice("x"),))),
    ("DUPLICATE_COUNTER_SET", lambda s: with_spec(s, 0, shared_counters=s[0].spec.shared_counters * 2)),
    (
        "DUPLICATE_COUNTER_SET",
        lambda s: with_device(s, consumes_counters=s[1].spec.devices[0].consumes_counters * 2),
    ),
    ("DUPLICATE_DEVICE", lambda s: with_spec(s, 1, devices=(*s[1].spec.devices, s[1].spec.devices[0]))),
    ("DUPLICATE_SLICE", lambda s: (s[0], replace(s[1], metadata=s[0].metadata))),
    ("EMPTY_COUNTERS", lambda s: with_device(s, consumes_counters=(CounterConsumption("gpu-0-counter-set", {}),))),
    ("GENERATION", lambda s: with_pool(s, 1, generation=2)),
    ("GENERATION", lambda s: with_pool(with_pool(s, 0, generation=-1), 1, generation=-1)),
    ("NAME", lambda s: with_device(s, name="gpu-0-mig-1g.5gb")),
    ("NAME", lambda s: with_device(s, name="x" * 64)),
    ("NAME", lambda s: with_device(s, attributes={"a/b/c": text("")})),
    ("NAME", lambda s: with_device(s, attributes={"x" * 33: text("")})),
    ("NAME", lambda s: with_device(s, capacity={"memory-size": ONE})),
    ("NAME", lambda s: with_device(s, attributes={"Upper.example/a": text("")})),
    ("NAME", lambda s: with_counters(s, {**counters_of(s), "Slices": ONE})),
    ("NAME", lambda s: with_spec(with_spec(s, 0, driver="x" * 64), 1, driver="x" * 64)),
    ("NAME", lambda s: (replace(s[0], metadata=replace(s[0].metadata, name="A")), s[1])),
    ("NO_SUCH_COUNTER", lambda s: with_counters(s, {**counters_of(s)}, "gpu-9-counter-set")),
    (
        "NO_SUCH_COUNTER",
        lambda s: with_counters(s, {k: v for k, v in counters_of(s).items() if k != "memory-slice-7"}),
    ),
    ("NODE", lambda s: with_spec(s, 1, node_name="node-2")),
    ("POOL_NAME", lambda s: with_pool(with_pool(s, 0, name=NODE), 1, name=NODE)),
    ("POOL_NAME", lambda s: with_pool(with_pool(s, 0, name="a//b"), 1, name="a//b")),
    ("POOL_NAME", lambda s: with_spec(s, 1, driver="gpu.aliquot.dev")),
    ("QUANTITY", lambda s: with_device(s, capacity={"memory": QuantityValue("5 GiB")})),
    ("QUANTITY", lambda s: with_counters(s, {**counters_of(s), "memory-slice-0": QuantityValue("-1")})),
    ("SLICE_COUNT", lambda s: s[1:]),
    ("SLICE_COUNT", lambda s: with_pool(s, 1, resource_slice_count=3)),
    ("TAINT", lambda s: with_device(s, taints=(DeviceTaint("a b", "NoSchedule"),))),
    ("TAINT", lambda s: with_device(s, taints=(DeviceTaint("a", "PreferNoSchedule"),))),
    ("TAINT", lambda s: with_device(s, taints=(DeviceTaint("a", "NoSchedule", "not/a/value"),))),
    ("TOO_MANY_ATTRIBUTES", lambda s: with_device(s, attributes={f"a{n}": text("") for n in range(33)})),
    (
        "TOO_MANY_CONSUMPTIONS",
        lambda s: with_device(s, consumes_counters=tuple(CounterConsumption(f"s{n}", {"a": ONE}) for n in range(3))),
    ),
    ("TOO_MANY_COUNTERS", lambda s: with_counters(s, counters_of(s) | {f"c{n}": ONE for n in range(22)})),
    (
        "TOO_MANY_COUNTER_SETS",
        lambda s: with_spec(
            s, 0, shared_counters=tuple(SharedCounterSet(f"gpu-{n}-counter-set", counters_of(s)) for n in range(9))
        ),
    ),
    (
        "TOO_MANY_DEVICES",
        lambda s: with_spec(
            s, 1, devices=(*s[1].spec.devices, *(SliceDevice(f"x-{n}") for n in range(65 - len(s[1].spec.devices))))
        ),
    ),
    ("TOO_MANY_DEVICES", lambda s: with_spec(s, 1, devices=tuple(SliceDevice(f"x-{n}") for n in range(129)))),
    ("TOO_MANY_TAINTS", lambda s: with_device(s, taints=tuple(DeviceTaint(f"a{n}", "None") for n in range(17)))),
]


def test_what_is_built_is_valid() -> None:
    validate_slices(valid(), NODE)


@pytest.mark.parametrize(("code", "broken"), CASES)
def test_a_fault(code: FaultCode, broken: Callable[[Slices], Slices]) -> None:
    assert code in {fault.code for fault in find_faults(broken(valid()), NODE)}


def test_every_code_has_a_case() -> None:
    assert {code for code, _ in CASES} == set(get_args(FaultCode))


def test_128_devices_without_counters_and_64_with_are_valid() -> None:
    plain = with_spec(valid(), 1, devices=tuple(SliceDevice(f"x-{n}") for n in range(128)))
    assert find_faults(plain, NODE) == ()
    devices = valid()[1].spec.devices
    full = with_spec(valid(), 1, devices=(*devices, *(SliceDevice(f"x-{n}") for n in range(64 - len(devices)))))
    assert find_faults(full, NODE) == ()


def test_the_shape_of_1_34_has_its_own_limits() -> None:
    offer = offered(factory.inventory(f"{A100}*3", enabled=True))
    both = build_slices(Publication(offer.devices, offer.counter_sets), NAMING, NODE)
    one = with_pool(
        with_spec(both[1:], 0, shared_counters=both[0].spec.shared_counters, devices=both[1].spec.devices[:60]),
        0,
        resource_slice_count=1,
    )
    assert {fault.code for fault in find_faults(one, NODE, combined=True)} == {"TOO_MANY_COUNTERS"}
    assert "COUNTERS_WITH_DEVICES" in {fault.code for fault in find_faults(one, NODE)}
    two = with_spec(one, 0, shared_counters=one[0].spec.shared_counters[:2], devices=one[0].spec.devices[:50])
    assert find_faults(two, NODE, combined=True) == ()
    elsewhere = with_spec(two, 0, shared_counters=two[0].spec.shared_counters[:1])
    assert {fault.code for fault in find_faults(elsewhere, NODE, combined=True)} == {"NO_SUCH_COUNTER"}


def test_all_faults_are_reported_at_once_with_their_places() -> None:
    broken = with_pool(with_device(valid(), name="Gpu", capacity={"memory": QuantityValue("?")}), 0, generation=7)
    with pytest.raises(InvalidSlicesError) as caught:
        validate_slices(broken, NODE)
    assert caught.value.code == "DRA_SLICES"
    assert len(caught.value.details) == 3
    assert caught.value.details[0] == (
        "slice 01-gpu.nvidia.com-node-1-aliquot, device Gpu: the name is not a DNS label (NAME)"
    )
    assert "node-1" in caught.value.brief
