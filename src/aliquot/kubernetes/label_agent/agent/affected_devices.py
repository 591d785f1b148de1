"""UUIDs of devices that a step affects, which are withheld from kubelet while it runs."""

from __future__ import annotations

from aliquot.core.model.actions import Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation


def devices_to_destroy(plan: Plan, observation: Observation) -> frozenset[str]:
    """Return the UUIDs of the devices that a plan destroys, including whole GPUs that change their MIG mode."""
    found: set[str] = set()
    assert observation.inventory is not None
    for action in plan.actions:
        gpu = observation.inventory.gpu(action.gpu)
        match action:
            case Destroy():
                instance = gpu.instance(action.instance)
                found |= {c.uuid for c in instance.compute_instances} if instance else set()
            case DestroyCompute():
                instance = gpu.instance(action.instance)
                parts = instance.compute_instances if instance else ()
                found |= {c.uuid for c in parts if c.id == action.compute_instance}
            case SetMode() | Reset():
                found |= _all_device_ids(gpu)
    return frozenset(found)


def devices_to_free(observation: Observation) -> frozenset[str]:
    """Return the devices that will be destroyed once their holders have left."""
    return (
        devices_to_destroy(observation.forced_plan, observation) if observation.forced_plan is not None else frozenset()
    )


def held_devices(inventory: Inventory) -> frozenset[str]:
    """Return the devices that have a holder."""
    instances = [i for gpu in inventory.gpus for i in gpu.instances if i.held]
    devices = {c.uuid for i in instances for c in i.compute_instances}
    return frozenset(devices | {gpu.uuid for gpu in inventory.gpus if gpu.holders})


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
        own = ending & _all_device_ids(gpu)
        held, before = own & observation.held, own & known
        released = before and not held
        evicting = observation.holder_policy.policy != "wait" and (held or before)
        found |= own if released or evicting else held | before
    return frozenset(found)


def _all_device_ids(gpu: Gpu) -> frozenset[str]:
    return frozenset({gpu.uuid, *(c.uuid for i in gpu.instances for c in i.compute_instances)})
