"""UUIDs of devices that a step affects, which are withheld from kubelet while it runs."""

from __future__ import annotations

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation
from aliquot.kubernetes.node_agent.held_devices import all_device_ids, devices_to_destroy


def devices_to_free(observation: Observation) -> frozenset[str]:
    """Return the devices that will be destroyed once their holders have left."""
    assert observation.inventory is not None
    plan = observation.forced_plan
    return devices_to_destroy(plan, observation.inventory) if plan is not None else frozenset()


def held_devices(inventory: Inventory) -> frozenset[str]:
    """Return the devices that have a holder."""
    instances = [i for gpu in inventory.gpus for i in gpu.instances if i.held]
    devices = {c.uuid for i in instances for c in i.compute_instances}
    vgpus = {device for gpu in inventory.gpus for v in gpu.vgpus if v.holders for device in (v.uuid, v.function)}
    return frozenset((devices | vgpus | {gpu.uuid for gpu in inventory.gpus if gpu.holders}) - {""})


def devices_to_withhold(observation: Observation, memory: AgentMemory) -> frozenset[str]:
    """Return the devices to withhold from new pods while the agent waits for holders.

    These are held devices, which must not be allocated again when their holders leave. Of a GPU whose holders have
    left, these are all devices that will be destroyed. If pods are evicted, the same holds for a GPU that still has
    holders, so that no pod comes back there. Other GPUs stay in use: the plan touches them only once no holder is left,
    and withholds all devices first.
    """
    assert observation.inventory is not None
    ending, known = devices_to_free(observation), memory.awaited_devices(observation)
    found: set[str] = set()
    for gpu in observation.inventory.gpus:
        own = ending & all_device_ids(gpu)
        held, before = own & observation.held, own & known
        released = before and not held
        evicting = observation.holder_policy.policy != "wait" and (held or before)
        found |= own if released or evicting else held | before
    return frozenset(found)
