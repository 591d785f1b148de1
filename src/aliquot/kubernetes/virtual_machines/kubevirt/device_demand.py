"""What each virtual machine asks for and where it has it: the two objects of one machine as one value. Pure.

A machine is a VirtualMachine, its VirtualMachineInstance (same namespace, same name), or both. What runs counts as it
was started, whatever the VirtualMachine says by now; what it will ask for in addition at its next start waits.
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
    """What one machine asks for: ``counts`` is devices by resource, ``selector`` labels that its node must have.
    ``node`` is where it has them, empty while it waits; ``target`` where it has as many again while it moves there.
    ``cluster`` and ``pool`` are Rancher's names for what the machine belongs to, empty for machines of other origin.
    """

    namespace: str
    name: str
    counts: Mapping[str, int]
    selector: Mapping[str, str] = {}
    node: str = ""
    cluster: str = ""
    pool: str = ""
    target: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it has devices now."""
        return tuple(dict.fromkeys(each for each in (self.node, self.target) if each))

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: those of its VirtualMachine and of its VirtualMachineInstance."""
        return self.namespace, self.name


def count_devices(devices: VmDevices) -> dict[str, int]:
    """Devices by resource; those from DRA claims are none of a device plugin's."""
    return dict(Counter(each.device_name for each in devices.all if each.device_name and not each.claim_name))


def vm_demand(vm: VirtualMachine) -> VmDemand:
    """What the machine asks for when it starts, whether or not it is to run."""
    selector = vm.spec.template.spec.node_selector
    return _demand(vm.metadata, count_devices(vm.devices), selector, "")


def instance_demand(instance: VirtualMachineInstance) -> VmDemand:
    """What a machine has, or waits for, since it was started."""
    found = _demand(
        instance.metadata, count_devices(instance.devices), instance.spec.node_selector, instance.status.node_name
    )
    return msgspec.structs.replace(found, target=instance.migration_target)


def demands(
    vms: Iterable[VirtualMachine], instances: Iterable[VirtualMachineInstance]
) -> tuple[tuple[VmDemand, ...], tuple[VmDemand, ...], tuple[VmDemand, ...]]:
    """Those that have their devices, those that wait for devices, and those that are stopped, each sorted by name.

    An instance whose machine asks for more by now is in the first list with what it has and in the second with the
    rest. One that is over holds nothing; one that is being deleted holds what it has until it is gone. A machine that
    is being deleted asks for nothing new.
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
