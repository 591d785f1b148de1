"""plan(inventory, desired, policy): the one entry point. Pure: the same inputs give the same plan, in any order."""

from __future__ import annotations

from aliquot.core.model.desired import Desired, GpuWish
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.core.planner.concern import concerns_virtual_machines
from aliquot.core.planner.gpu_plan import Lane, plan_gpu


def plan(inventory: Inventory, desired: Desired, policy: Policy | None = None) -> Plan:
    """The least disruptive way from what is to what should be, or every reason why there is none.

    A GPU that the wish does not name is left alone. If any GPU is blocked the whole plan is: nothing is half done.
    """
    policy = policy or Policy()
    wishes = sorted(desired.gpus, key=lambda w: w.pci)
    lanes = [_lane(inventory, wish, desired.name, policy) for wish in wishes]
    blockers = [Blocker(rule=f.rule, message=f.message, gpu=f.pci, next_step=f.next_step) for f in desired.faults]
    blockers += [blocker for lane in lanes for blocker in lane.blockers]
    if sum(bool(wish.passthrough) for wish in wishes) > 1:
        from aliquot.core.planner.vgpu.fabric import together

        blockers += together(inventory, wishes)
    notes = (*inventory.notes, *desired.notes, *(note for lane in lanes for note in lane.notes))
    if blockers:
        return Plan(
            node=inventory.node,
            fingerprint=inventory.fingerprint,
            desired=desired,
            policy=policy,
            blockers=tuple(blockers),
            notes=notes,
        )
    return make_plan(
        inventory.node,
        inventory.fingerprint,
        desired,
        tuple(action for lane in lanes for action in lane.actions),
        policy=policy,
        kept=sum(lane.kept for lane in lanes),
        reboots=tuple(wish.pci for wish, lane in zip(wishes, lanes, strict=True) if lane.reboot),
        notes=notes,
    )


def _lane(inventory: Inventory, wish: GpuWish, name: str, policy: Policy) -> Lane:
    """The lane of one GPU. Where nothing is shared with virtual machines, their half of the planner is not loaded."""
    gpu = next((g for g in inventory.gpus if g.pci == wish.pci), None)
    if gpu is None:
        text = f"there is no GPU at {wish.pci} on this node"
        return Lane(blockers=(Blocker(rule="NO_SUCH_GPU", message=text, gpu=wish.pci, next_step="aliquot show"),))
    if concerns_virtual_machines(gpu, wish):
        from aliquot.core.planner.vgpu.gpu_plan import plan_shares

        return plan_shares(inventory, gpu, wish, name, policy)
    family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
    return plan_gpu(family, gpu, wish, name, policy)
