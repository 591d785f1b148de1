"""Devices that a plan destroys: they are withheld from the kubelet while it runs."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model.actions import Action, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.label_agent.agent.affected_devices import devices_to_free
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.node_agent.held_devices import devices_to_destroy
from support.agent_observations import make_observation, node
from support.factory import with_instances

replace = msgspec.structs.replace


def _observed() -> tuple[Observation, Plan]:
    found = with_instances(node(), 0, "1g.5gb@0", "1g.5gb@1")
    (first, *others) = found.gpus
    named = tuple(
        replace(i, compute_instances=tuple(replace(c, uuid=f"MIG-{i.id}") for c in i.compute_instances))
        for i in first.instances
    )
    inventory: Inventory = replace(found, gpus=(replace(first, instances=named), *others))
    o = make_observation("all-1g.5gb", inventory)
    assert o.plan is not None
    return o, o.plan


def _ended(*actions: Action) -> frozenset[str]:
    o, plan = _observed()
    assert o.inventory is not None
    return devices_to_destroy(replace(plan, actions=actions), o.inventory)


def test_each_action_ends_its_devices() -> None:
    o, _ = _observed()
    assert o.inventory is not None
    gpu = o.inventory.gpus[0]
    one, other = gpu.instances
    (compute,) = one.compute_instances
    about: dict[str, Any] = {"gpu": gpu.pci, "reason": ""}
    destroy = Destroy(**about, instance=one.id, profile="", profile_id=0, placement="")
    part = DestroyCompute(**about, instance=one.id, compute_instance=compute.id, profile="")
    assert _ended() == frozenset()
    assert _ended(destroy) == _ended(part) == {f"MIG-{one.id}"}
    assert _ended(replace(part, compute_instance=compute.id + 1)) == frozenset()
    assert _ended(replace(part, instance=99), replace(destroy, instance=99)) == frozenset()
    everything = {gpu.uuid, f"MIG-{one.id}", f"MIG-{other.id}"}
    assert _ended(SetMode(**about, mode="disabled")) == _ended(Reset(**about)) == everything


def test_in_the_way_is_what_force_would_end() -> None:
    o, plan = _observed()
    assert devices_to_free(replace(o, forced_plan=None)) == frozenset()
    gpu = o.inventory.gpus[0] if o.inventory else None
    assert gpu is not None
    forced = replace(plan, actions=(Reset(gpu=gpu.pci, reason=""),))
    assert gpu.uuid in devices_to_free(replace(o, forced_plan=forced))
