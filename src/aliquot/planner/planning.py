"""plan(inventory, desired, policy): the one entry point. Pure: the same inputs give the same plan, in any order."""

from __future__ import annotations

from aliquot.model.actions import Action
from aliquot.model.desired import Desired, GpuWish
from aliquot.model.inventory import Gpu, Inventory
from aliquot.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.planner.concern import concerns_virtual_machines
from aliquot.planner.lane import Lane, plan_gpu


def plan(inventory: Inventory, desired: Desired, policy: Policy | None = None) -> Plan:
    """The least disruptive way from what is to what should be, or every reason why there is none.

    A GPU that the wish does not name is left alone. If any GPU is blocked the whole plan is: nothing is half done.
    """
    policy = policy or Policy()
    blockers = [Blocker(rule=f.rule, message=f.message, gpu=f.pci, next_step=f.next_step) for f in desired.faults]
    actions: list[Action] = []
    notes = list(inventory.notes) + list(desired.notes)
    kept = 0
    reboots: list[str] = []
    for wish in sorted(desired.gpus, key=lambda w: w.pci):
        gpu = next((g for g in inventory.gpus if g.pci == wish.pci), None)
        if gpu is None:
            text = f"there is no GPU at {wish.pci} on this node"
            blockers.append(Blocker(rule="NO_SUCH_GPU", message=text, gpu=wish.pci, next_step="aliquot show"))
            continue
        lane = _lane(inventory, gpu, wish, desired.name, policy)
        blockers += lane.blockers
        actions += lane.actions
        notes += lane.notes
        kept += lane.kept
        if lane.reboot:
            reboots.append(gpu.pci)
    if blockers:
        return Plan(
            node=inventory.node,
            fingerprint=inventory.fingerprint,
            desired=desired,
            policy=policy,
            blockers=tuple(blockers),
            notes=tuple(notes),
        )
    return make_plan(
        inventory.node,
        inventory.fingerprint,
        desired,
        tuple(actions),
        policy=policy,
        kept=kept,
        reboots=tuple(reboots),
        notes=tuple(notes),
    )


def _lane(inventory: Inventory, gpu: Gpu, wish: GpuWish, name: str, policy: Policy) -> Lane:
    """The lane of one GPU. Where nothing is shared with virtual machines, their half of the planner is not loaded."""
    if concerns_virtual_machines(gpu, wish):
        from aliquot.planner.vgpu.shares import plan_shares

        return plan_shares(inventory, gpu, wish, name, policy)
    family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
    return plan_gpu(family, gpu, wish, name, policy)
