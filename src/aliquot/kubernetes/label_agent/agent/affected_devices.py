"""Which devices a step concerns, by UUID: what must not be given away while it is under way."""

from __future__ import annotations

from aliquot.core.model.actions import Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation


def devices_to_destroy(plan: Plan, observation: Observation) -> frozenset[str]:
    """The UUIDs of the devices that a plan ends, whole GPUs that change their mode among them."""
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
    """The devices that are to go once their holders have left."""
    return (
        devices_to_destroy(observation.forced_plan, observation) if observation.forced_plan is not None else frozenset()
    )


def held_devices(inventory: Inventory) -> frozenset[str]:
    """The devices that somebody holds."""
    instances = [i for gpu in inventory.gpus for i in gpu.instances if i.held]
    devices = {c.uuid for i in instances for c in i.compute_instances}
    return frozenset(devices | {gpu.uuid for gpu in inventory.gpus if gpu.holders})


def devices_to_withhold(observation: Observation, memory: AgentMemory) -> frozenset[str]:
    """The devices that nobody new may get while holders are waited for: those that must not be given away again when
    their holders leave, and all that are to go of a GPU whose holders have left. Where pods are evicted it is all of a
    GPU that has holders, so that none comes back there. Other GPUs stay in use: the plan touches them when nobody is
    left anywhere, and withholds everything first.
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
