"""plan(inventory, desired, policy): the only entry point.

Pure: the same inputs give the same plan, in any order.
"""

from __future__ import annotations

from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.core.model.structured_text import GpuPart, StructuredText
from aliquot.core.planner.gpu_plan import GpuPlan, plan_gpu


def plan(inventory: Inventory, desired: Desired, policy: Policy | None = None) -> Plan:
    """Return the least disruptive plan from the inventory to the desired state, or every blocker.

    GPUs that the desired state does not name are left unchanged. If one GPU is blocked, the whole plan is blocked, so
    that nothing is half done.
    """
    policy = policy or Policy()
    desired_gpus = sorted(desired.gpus, key=lambda w: w.pci)
    gpu_plans = [_plan_one_gpu(inventory, desired_gpu, desired.name, policy) for desired_gpu in desired_gpus]
    blockers = [Blocker(rule=f.rule, text=f.text, gpu=f.pci, step=f.step) for f in desired.failures]
    blockers += [blocker for gpu_plan in gpu_plans for blocker in gpu_plan.blockers]
    if sum(bool(desired_gpu.passthrough) for desired_gpu in desired_gpus) > 1:
        from aliquot.core.planner.vgpu.passthrough import passthrough_blockers

        blockers += passthrough_blockers(inventory, desired_gpus)
    notes = (*inventory.notes, *desired.notes, *(note for gpu_plan in gpu_plans for note in gpu_plan.notes))
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
        tuple(action for gpu_plan in gpu_plans for action in gpu_plan.actions),
        policy=policy,
        unchanged=sum(gpu_plan.unchanged for gpu_plan in gpu_plans),
        reboots=tuple(
            desired_gpu.pci for desired_gpu, gpu_plan in zip(desired_gpus, gpu_plans, strict=True) if gpu_plan.reboot
        ),
        notes=notes,
    )


def _plan_one_gpu(inventory: Inventory, desired_gpu: DesiredGpu, name: str, policy: Policy) -> GpuPlan:
    """Plan one GPU. The vGPU planner is loaded only if the GPU or the request involves VMs."""
    gpu = next((g for g in inventory.gpus if g.pci == desired_gpu.pci), None)
    if gpu is None:
        text = StructuredText("this node has no GPU at ", GpuPart(desired_gpu.pci))
        return GpuPlan(blockers=(Blocker("NO_SUCH_GPU", text, desired_gpu.pci, step="aliquot show"),))
    if gpu.involves_vms or desired_gpu.involves_vms:
        from aliquot.core.planner.vgpu.gpu_plan import plan_shared_gpu

        return plan_shared_gpu(inventory, gpu, desired_gpu, name, policy)
    family = inventory.family(gpu) if gpu.mig.capable and gpu.family else None
    return plan_gpu(family, gpu, desired_gpu, name, policy)
