"""The device requests of each VM and their nodes: both objects of a VM as one value. Pure.

A VM has a VirtualMachine, a VirtualMachineInstance (same namespace and name), or both. A running VM counts as it was
started, whatever the VirtualMachine requests now. What it requests additionally for its next start counts as waiting.

Source: KubeVirt API reference; labels of docker-machine-driver-harvester (harvester/create.go).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance, VmDevices

CLUSTER_LABEL = "guestcluster.harvesterhci.io/name"
POOL_LABEL = "nodepool.harvesterhci.io/name"


class VmDemand(msgspec.Struct, frozen=True):
    """The device requests of a VM."""

    namespace: str
    name: str
    counts: Mapping[str, int]
    """Devices by resource."""
    selector: Mapping[str, str] = {}
    """Labels that the VM's node must have."""
    node: str = ""
    """Where the VM has the devices; empty while it waits."""
    cluster: str = ""
    """Rancher's guest cluster that the VM belongs to; empty for other VMs."""
    pool: str = ""
    """Rancher's machine pool that the VM belongs to; empty for other VMs."""
    target: str = ""
    """Where the VM has as many devices again during its live migration."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes on which the VM has devices now."""
        return tuple(dict.fromkeys(each for each in (self.node, self.target) if each))

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name, the same for VirtualMachine and VirtualMachineInstance."""
        return self.namespace, self.name


def count_devices(devices: VmDevices) -> dict[str, int]:
    """Count the devices by resource, without those from DRA claims: a device plugin does not serve them."""
    return dict(Counter(each.device_name for each in devices.all if each.device_name and not each.claim_name))


def vm_demand(vm: VirtualMachine) -> VmDemand:
    """Return the demand of the VM at its start, whether or not it should run."""
    selector = vm.spec.template.spec.node_selector
    return _demand(vm.metadata, count_devices(vm.devices), selector, "")


def instance_demand(instance: VirtualMachineInstance) -> VmDemand:
    """Return the demand of a started VM: the devices that it has or waits for."""
    found = _demand(
        instance.metadata, count_devices(instance.devices), instance.spec.node_selector, instance.status.node_name
    )
    return msgspec.structs.replace(found, target=instance.migration_target)


def demands(
    vms: Iterable[VirtualMachine], instances: Iterable[VirtualMachineInstance]
) -> tuple[tuple[VmDemand, ...], tuple[VmDemand, ...], tuple[VmDemand, ...]]:
    """Return the demands of VMs that have devices, that wait for devices, and that are stopped, each sorted by name.

    If a VM requests more than its instance has, the instance is in the first list and the difference in the second. An
    instance that has ended holds nothing; a terminating one holds its devices until it is gone. A VirtualMachine that
    is being deleted requests nothing new.
    """
    all_ = tuple(instances)
    live = {each.key: instance_demand(each) for each in all_ if not each.finished}
    ended = {each.key: each.status.phase for each in all_ if each.finished}
    waiting: list[VmDemand] = [each for each in live.values() if not each.node and each.counts]
    stopped: list[VmDemand] = []
    for vm in vms:
        requested = vm_demand(vm)
        if not requested.counts or vm.metadata.deletion_timestamp:
            continue
        started = live.get(vm.key)
        wanted = vm.should_run_after(ended[vm.key]) if vm.key in ended else vm.should_run
        if not wanted:
            stopped += [] if started is not None else [requested]
        elif more := _additional(requested.counts, {} if started is None else started.counts):
            waiting.append(msgspec.structs.replace(requested, counts=more))
    has = (each for each in live.values() if each.node and each.counts)
    return _sorted(has), _sorted(waiting), _sorted(stopped)


def _additional(requested: Mapping[str, int], has: Mapping[str, int]) -> dict[str, int]:
    return {
        resource: count - has.get(resource, 0) for resource, count in requested.items() if count > has.get(resource, 0)
    }


def _demand(meta: ObjectMeta, counts: dict[str, int], selector: Mapping[str, str], node: str) -> VmDemand:
    cluster, pool = meta.labels.get(CLUSTER_LABEL, ""), meta.labels.get(POOL_LABEL, "")
    return VmDemand(meta.namespace, meta.name, counts, dict(selector), node, cluster, pool)


def _sorted(found: Iterable[VmDemand]) -> tuple[VmDemand, ...]:
    return tuple(sorted(found, key=lambda each: each.key))
