"""Resource slices and device classes as the API writes them (``resource.k8s.io/v1``), reduced to what Aliquot uses.

Source: kubernetes/api resource/v1/types.go. Counters and capacities are quantities (``kubernetes.gpu.quantity``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType

GROUP = "resource.k8s.io"
TaintEffect = Literal["None", "NoSchedule", "NoExecute"]


class DeviceAttribute(ApiStruct, frozen=True):
    """The value of an attribute. Exactly one field is set."""

    bool_value: bool | None = msgspec.field(name="bool", default=None)
    int_value: int | None = msgspec.field(name="int", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    """A semantic version, ``8.0.0``."""


class QuantityValue(ApiStruct, frozen=True):
    """A capacity of a device, or a counter."""

    value: str


_Value = TypeVar("_Value", DeviceAttribute, QuantityValue)


@lru_cache(maxsize=8192)
def _one_of_equal(value: Any) -> Any:
    return value


def _share(values: dict[str, _Value]) -> None:
    """Keep one object for equal values. The devices of a GPU repeat most of them, and a cluster has many devices."""
    for name, value in values.items():
        values[name] = _one_of_equal(value)


class CounterConsumption(ApiStruct, frozen=True):
    """The counters that a device takes from one set while it is allocated."""

    counter_set: str
    counters: dict[str, QuantityValue]

    def __post_init__(self) -> None:
        _share(self.counters)


class DeviceTaint(ApiStruct, frozen=True):
    """A taint of a device. ``NoSchedule`` keeps new claims away and leaves those alone that have the device."""

    key: str
    effect: str
    """One of ``TaintEffect``. Other words of later releases mean the same as ``None``."""
    value: str = ""
    time_added: str | None = None
    """RFC 3339. The API server sets it if it is missing."""


class SliceDevice(ApiStruct, frozen=True):
    name: str
    attributes: dict[str, DeviceAttribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, QuantityValue] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()

    def __post_init__(self) -> None:
        _share(self.attributes)
        _share(self.capacity)


class SharedCounterSet(ApiStruct, frozen=True):
    name: str
    counters: dict[str, QuantityValue]


class ResourcePool(ApiStruct, frozen=True):
    """The pool of a slice. The scheduler uses a pool if it sees all slices of its highest generation."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool("")
    node_name: str = ""
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[SharedCounterSet, ...] = ()


class ResourceSlice(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, "v1", "resourceslices", "ResourceSlice", namespaced=False)

    spec: ResourceSliceSpec = ResourceSliceSpec()


class CelSelector(ApiStruct, frozen=True):
    expression: str


class DeviceSelector(ApiStruct, frozen=True):
    cel: CelSelector


class DeviceClassSpec(ApiStruct, frozen=True):
    selectors: tuple[DeviceSelector, ...] = ()
    extended_resource_name: str | None = None
    """The resource that a pod may request instead of a claim. The API server of 1.34 and later knows it."""


class DeviceClass(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, "v1", "deviceclasses", "DeviceClass", namespaced=False)

    spec: DeviceClassSpec = DeviceClassSpec()
