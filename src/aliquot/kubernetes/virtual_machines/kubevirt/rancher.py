"""Rancher's machine pools: the requests of their VMs, and the VMs that are still to come. Pure.

Sources: harvester/docker-machine-driver-harvester (fields and labels, in harvester/config.go, hostdevice.go and
create.go); rancher/dashboard, pkg/harvester-manager (what its form sends).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from aliquot.errors import ConfigError
from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import FitResult, fit

T = TypeVar("T")
MAX_VMS = 1000


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    """A requested device."""

    device_name: str
    name: str = ""
    """A placeholder: Rancher writes "provisioned" or nothing."""


class VgpuInfo(msgspec.Struct, frozen=True):
    """The value of ``--harvester-vgpu-info``.

    For example ``{"vGPURequests": [{"name": "", "deviceName": "nvidia.com/NVIDIA_A2-2Q"}]}``.
    """

    requests: tuple[_Request, ...] | None = msgspec.field(name="vGPURequests", default=())


class HostDeviceInfo(msgspec.Struct, frozen=True):
    """The value of ``--harvester-host-device-info``.

    Its list was first called ``hostDeviceRequests``, and is now called ``hostDevices``.
    """

    devices: tuple[_Request, ...] | None = msgspec.field(name="hostDevices", default=())
    requests: tuple[_Request, ...] | None = msgspec.field(name="hostDeviceRequests", default=())


class MachinePool(msgspec.Struct, frozen=True):
    """A machine pool."""

    namespace: str
    cluster: str
    vm_count: int
    """How many VMs the pool should have."""
    counts: dict[str, int]
    """The devices that each VM requests, by resource."""
    name: str = ""
    """Empty for all pools of the cluster."""


def requests(vgpu_info: str = "", host_device_info: str = "") -> dict[str, int]:
    """Return the devices by resource that each VM of a pool requests, from the texts that Rancher stores.

    Raise ConfigError for a text that is not the driver's.
    """
    vgpus = _read(vgpu_info, VgpuInfo, "vgpuInfo", '{"vGPURequests": [{"deviceName": "nvidia.com/NVIDIA_A2-4Q"}]}')
    host = _read(
        host_device_info, HostDeviceInfo, "hostDeviceInfo", '{"hostDevices": [{"name": "gpu", "deviceName": "..."}]}'
    )
    requested: list[_Request] = [*(vgpus.requests or ()), *(host.devices or ()), *(host.requests or ())]
    unnamed = [each for each in requested if not each.device_name]
    if unnamed:
        raise ConfigError("a device that a machine pool asks for has no deviceName")
    return dict(Counter(each.device_name for each in requested))


def missing_vms(capacity: Capacity, pool: MachinePool) -> tuple[VmDemand, ...]:
    """Return the VMs that the pool does not have yet.

    Its VMs count, whether running, waiting or stopped, if they have what the pool requests. Rancher replaces a VM that
    has something else, and creates the new one before the old one goes.
    """
    has: dict[tuple[str, str], Counter[str]] = {}
    for each in (*capacity.running, *capacity.waiting, *capacity.stopped):
        if _belongs(each, pool):
            has.setdefault(each.key, Counter()).update(each.counts)
    matching = [found for found in has.values() if all(found[name] >= count for name, count in pool.counts.items())]
    more = max(0, pool.vm_count - len(matching))
    word = pool.name or "pool"
    return tuple(
        VmDemand(pool.namespace, f"{pool.cluster}-{word}-(new {n})", pool.counts, cluster=pool.cluster, pool=pool.name)
        for n in range(1, more + 1)
    )


def fit_pools(capacity: Capacity, pools: Sequence[MachinePool]) -> FitResult:
    """Report whether all pools of a cluster get their VMs together."""
    return fit(capacity, [each for pool in pools for each in missing_vms(capacity, pool)])


def machine_pool(namespace: str, cluster: str, vm_count: int, counts: dict[str, int], name: str = "") -> MachinePool:
    """Build a machine pool. Raise ConfigError if its values are invalid."""
    check_vm_count(vm_count)
    if not cluster:
        raise ConfigError("a machine pool needs the name of its cluster")
    return MachinePool(namespace, cluster, vm_count, counts, name)


def check_vm_count(vm_count: int) -> None:
    """Raise ConfigError if a number of VMs is out of range."""
    if not 0 <= vm_count <= MAX_VMS:
        raise ConfigError(f"{vm_count} machines: the number must be 0 to {MAX_VMS}")


def _belongs(demand: VmDemand, pool: MachinePool) -> bool:
    return (
        demand.cluster == pool.cluster
        and demand.namespace == pool.namespace
        and (not pool.name or demand.pool == pool.name)
    )


def _read(text: str, kind: type[T], what: str, example: str) -> T:
    """Decode a text of the driver. An empty text counts as an empty object, as in the driver."""
    try:
        return msgspec.json.decode(text or "{}", type=kind)
    except (*UNREADABLE, UnicodeError) as error:
        raise ConfigError(f"{what} cannot be read: {error}", details=(f"example: {example}",)) from error
