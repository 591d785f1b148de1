"""The actions for VMs: virtual functions, vGPUs, mixed-size mode, scheduler, passthrough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from aliquot.core.engine.holder_check import all_holders, ensure_idle, vgpu_holders
from aliquot.core.engine.journal_step import step_of
from aliquot.core.engine.run import Run
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough, SetScheduler
from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.errors import InUseError

VirtualAction = SetFunctions | SetMixedSize | SetScheduler | CreateVgpu | DestroyVgpu | SetPassthrough


def execute(run: Run, action: VirtualAction) -> None:
    """Execute one action after checking the holders of what it removes. Raises what the backend raises."""
    backend = run.context.backend
    match action:
        case SetFunctions():
            # The driver drops all vGPUs and instances in both directions. The plan destroyed those that it knew.
            ensure_idle(run, action.gpu, all_holders)
            run.call(action.gpu, step_of(action), lambda: backend.set_functions(action.gpu, action.count))
        case SetMixedSize():
            ensure_idle(run, action.gpu, lambda gpu: vgpu_holders(_switched(gpu, action.on)))
            run.call(action.gpu, step_of(action), lambda: backend.set_mixed_size(action.gpu, action.on))
        case SetScheduler():
            # In MIG mode GPU instances with vGPUs are left as they are.
            ensure_idle(run, action.gpu, lambda gpu: vgpu_holders(() if gpu.mig.enabled else gpu.vgpus))
            run.call(action.gpu, step_of(action), lambda: backend.set_scheduler(action.gpu, action.scheduler))
        case CreateVgpu():
            run.call(action.gpu, step_of(action), lambda: _create(run, action))
        case DestroyVgpu():
            _destroy(run, action)
        case SetPassthrough():
            ensure_idle(run, action.gpu, lambda gpu: _passthrough_holders(gpu, action.function))
            run.call(
                action.gpu, step_of(action), lambda: backend.set_passthrough(action.gpu, action.on, action.function)
            )
        case _:
            assert_never(action)


def _switched(gpu: Gpu, on: bool) -> Sequence[Vgpu]:
    """Return the vGPUs whose mixed-size mode changes: in MIG mode not those in a GPU instance that has it already."""
    as_wanted = {i.id for i in gpu.instances if i.mixed_size == on}
    return [v for v in gpu.vgpus if v.gpu_instance is None or v.gpu_instance not in as_wanted]


def _create(run: Run, action: CreateVgpu) -> None:
    backend = run.context.backend
    try:
        backend.create_vgpu(action.gpu, action.function, action.type_id, action.uuid, action.parameters)
    except InUseError:
        # libvirt creates its persistent mdevs as soon as their function appears: this may be the requested one.
        gpu = backend.read_gpu(action.gpu)
        vgpu = _find(gpu, action)
        requested = action.type_id, action.parameters
        if vgpu is None or (vgpu.type_id, vgpu.parameters) != requested or not _has_uuids(gpu):
            raise


def _has_uuids(gpu: Gpu) -> bool:
    """Report whether the kernel identifies vGPUs by UUID. If not, the owner of one on a function is unknown."""
    return gpu.virtual is not None and not gpu.uses_vendor_vfio


def _destroy(run: Run, action: DestroyVgpu) -> None:
    def holders(gpu: Gpu) -> Sequence[Holder]:
        vgpu = _find(gpu, action)
        return vgpu.holders if vgpu else ()

    vgpu = _find(ensure_idle(run, action.gpu, holders), action)
    if vgpu is None or (vgpu.type_id, vgpu.ownership_token) != (action.type_id, action.ownership_token):
        raise InUseError(
            f"GPU {action.gpu}: the vGPU on {action.function} is no longer the {action.type} to destroy",
            details=("another process changed this GPU in the meantime",),
            next_step="aliquot plan",
        )
    run.destroy_vgpu(action.gpu, vgpu)


def _find(gpu: Gpu, action: CreateVgpu | DestroyVgpu) -> Vgpu | None:
    """Find the vGPU by its function and its UUID: one physical function may have several."""
    found = (v for v in gpu.vgpus if v.function == action.function)
    return next((v for v in found if v.uuid == action.uuid), None)


def _passthrough_holders(gpu: Gpu, function: str) -> Sequence[Holder]:
    """Return the holders that would lose the GPU, or one virtual function, when its driver changes."""
    if not function:
        return all_holders(gpu)
    virtual_function = next((f for f in (gpu.virtual.functions if gpu.virtual else ()) if f.pci == function), None)
    on_function = vgpu_holders(v for v in gpu.vgpus if v.function == function)
    return tuple(dict.fromkeys((*(virtual_function.holders if virtual_function else ()), *on_function)))
