"""GPUs on NVSwitch: what a virtual machine cannot use before Fabric Manager has activated a partition of the fabric.

Fabric partitions are not modelled: Aliquot neither knows which there are nor activates one. What needs one is refused.
Sources: NVIDIA Fabric Manager user guide, "vGPU Virtualization Model" (a partition is activated before each virtual
machine starts, also for one vGPU), "Shared NVSwitch Virtualization Model"; NVIDIA AI Enterprise, "NVIDIA NVSwitch" (no
MIG-backed vGPUs); NVIDIA/kubevirt-gpu-device-plugin#193, NVIDIA/gpu-operator#2923 (CUDA error 802 on HGX H200).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu import blockers as blocking

if TYPE_CHECKING:
    from aliquot.core.planner.vgpu.gpu_mode import Task

_NVSWITCH_PRODUCTS = ("NVIDIA B200", "NVIDIA B300 SXM6 AC")
"""Boards whose switches are no PCI functions of NVIDIA's driver: they come on NVSwitch baseboards alone."""


def on_nvswitch(inventory: Inventory, gpu: Gpu) -> bool:
    """Whether a GPU is on NVSwitch. A baseboard has one model, so that the machine's switches are this GPU's."""
    return gpu.product in _NVSWITCH_PRODUCTS or (inventory.host is not None and inventory.host.nvswitch)


def whole_gpu_blocker(task: Task) -> Blocker | None:
    """Why a new vGPU that is a whole GPU cannot be had."""
    if not on_nvswitch(task.inventory, task.gpu) or task.desired.restoring:
        return None
    have = [v.type_id for v in task.gpu.vgpus]
    whole = [each for each, n in task.types if each.max == 1 and not each.mig_backed and have.count(each.id or 0) < n]
    if not whole:
        return None
    why = (
        f"{whole[0].name} is a whole GPU on NVSwitch: CUDA in its virtual machine fails (error 802) until Fabric "
        "Manager activates the GPU's fabric partition, which aliquot does not do; MIG-backed types use no NVLink"
    )
    return blocking.refused(task.gpu, RuleRefusal("FABRIC", why), f"aliquot vgpu types {task.gpu.pci}")


def passthrough_notes(inventory: Inventory, gpu: Gpu) -> tuple[str, ...]:
    """What a virtual machine with this GPU needs besides, as notes."""
    if not on_nvswitch(inventory, gpu):
        return ()
    return (
        f"GPU {gpu.pci} is on NVSwitch: hand it to a virtual machine of its own; CUDA in there fails (error 802) until "
        "Fabric Manager activates a partition of this GPU, or the guest's driver is loaded with NVreg_NvLinkDisable=1",
    )


def passthrough_blockers(inventory: Inventory, desired_gpus: Sequence[DesiredGpu]) -> tuple[Blocker, ...]:
    """Why several GPUs cannot be handed out at once: for one virtual machine they must be a partition of the fabric."""
    requested = {
        desired_gpu.pci for desired_gpu in desired_gpus if desired_gpu.passthrough and not desired_gpu.restoring
    }
    gpus = [gpu for gpu in inventory.gpus if gpu.pci in requested and on_nvswitch(inventory, gpu)]
    new = [gpu for gpu in gpus if not gpu.passthrough]
    if len(gpus) < 2 or not new:
        return ()
    listed = ", ".join(gpu.pci for gpu in gpus if gpu is not new[0])
    why = (
        f"it and {listed} are on NVSwitch: CUDA in a virtual machine with several of them fails (error 802) until "
        "Fabric Manager activates their fabric partition, which aliquot does not do; pass them through one by one, "
        "each to a virtual machine of its own"
    )
    return (blocking.refused(new[0], RuleRefusal("FABRIC", why), f"aliquot passthrough enable {new[0].pci}"),)
