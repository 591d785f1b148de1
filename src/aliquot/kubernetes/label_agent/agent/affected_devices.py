"""Which devices a step concerns, by UUID: what must not be given away while it is under way."""

from __future__ import annotations

from aliquot.core.model.actions import Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.label_agent.agent.observation import Observation


def doomed(plan: Plan, o: Observation) -> frozenset[str]:
    """The UUIDs of the devices that a plan ends, whole GPUs that change their mode among them."""
    found: set[str] = set()
    assert o.inventory is not None
    for action in plan.actions:
        gpu = o.inventory.gpu(action.gpu)
        match action:
            case Destroy():
                instance = gpu.instance(action.instance)
                found |= {c.uuid for c in instance.compute_instances} if instance else set()
            case DestroyCompute():
                instance = gpu.instance(action.instance)
                parts = instance.compute_instances if instance else ()
                found |= {c.uuid for c in parts if c.id == action.compute_instance}
            case SetMode() | Reset():
                found |= {gpu.uuid, *(c.uuid for i in gpu.instances for c in i.compute_instances)}
    return frozenset(found)


def in_the_way(o: Observation) -> frozenset[str]:
    """The devices that are to go once their holders have left: nothing new goes onto them meanwhile."""
    return doomed(o.forced, o) if o.forced is not None else frozenset()
