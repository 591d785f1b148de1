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
from aliquot.kubernetes.kinds.kubevirt import Devices, VirtualMachine, VirtualMachineInstance

CLUSTER_LABEL = "guestcluster.harvesterhci.io/name"
POOL_LABEL = "nodepool.harvesterhci.io/name"


class Demand(msgspec.Struct, frozen=True):
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


def counted(devices: Devices) -> dict[str, int]:
    """Devices by resource; those from DRA claims are none of a device plugin's."""
    return dict(Counter(each.device_name for each in devices.all if each.device_name and not each.claim_name))


def of_machine(machine: VirtualMachine) -> Demand:
    """What the machine asks for when it starts, whether or not it is to run."""
    selector = machine.spec.template.spec.node_selector
    return _demand(machine.metadata, counted(machine.devices), selector, "")


def of_instance(instance: VirtualMachineInstance) -> Demand:
    """What a machine has, or waits for, since it was started."""
    found = _demand(
        instance.metadata, counted(instance.devices), instance.spec.node_selector, instance.status.node_name
    )
    return msgspec.structs.replace(found, target=instance.target)


def demands(
    machines: Iterable[VirtualMachine], instances: Iterable[VirtualMachineInstance]
) -> tuple[tuple[Demand, ...], tuple[Demand, ...], tuple[Demand, ...]]:
    """Those that have their devices, those that wait for devices, and those that are stopped, each sorted by name.

    An instance whose machine asks for more by now is in the first list with what it has and in the second with the
    rest. One that is over holds nothing; one that is being deleted holds what it has until it is gone. A machine that
    is being deleted asks for nothing new.
    """
    all_ = tuple(instances)
    live = {each.key: of_instance(each) for each in all_ if not each.over}
    ended = {each.key: each.status.phase for each in all_ if each.over}
    waiting: list[Demand] = [each for each in live.values() if not each.node and each.counts]
    stopped: list[Demand] = []
    for machine in machines:
        asked = of_machine(machine)
        if not asked.counts or machine.metadata.deletion_timestamp:
            continue
        started = live.get(machine.key)
        wanted = machine.wanted_after(ended[machine.key]) if machine.key in ended else machine.wanted
        if not wanted:
            stopped += [] if started is not None else [asked]
        elif more := _more(asked.counts, {} if started is None else started.counts):
            waiting.append(msgspec.structs.replace(asked, counts=more))
    has = (each for each in live.values() if each.node and each.counts)
    return _sorted(has), _sorted(waiting), _sorted(stopped)


def _more(asked: Mapping[str, int], has: Mapping[str, int]) -> dict[str, int]:
    return {resource: count - has.get(resource, 0) for resource, count in asked.items() if count > has.get(resource, 0)}


def _demand(meta: ObjectMeta, counts: dict[str, int], selector: Mapping[str, str], node: str) -> Demand:
    cluster, pool = meta.labels.get(CLUSTER_LABEL, ""), meta.labels.get(POOL_LABEL, "")
    return Demand(meta.namespace, meta.name, counts, dict(selector), node, cluster, pool)


def _sorted(found: Iterable[Demand]) -> tuple[Demand, ...]:
    return tuple(sorted(found, key=lambda each: each.key))
