"""Acts on what virtual machines share: virtual functions, vGPUs, mixed-size mode, passthrough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from aliquot.core.engine.action_text import creation_step
from aliquot.core.engine.holder_check import all_holders, ensure_idle, vgpu_holders
from aliquot.core.engine.run import Run
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough
from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.errors import InUseError

VirtualAction = SetFunctions | SetMixedSize | CreateVgpu | DestroyVgpu | SetPassthrough


def execute(run: Run, action: VirtualAction) -> None:
    """Do one act, after a fresh look at who is on what it takes away. Raises what the backend raises."""
    backend = run.context.backend
    match action:
        case SetFunctions():
            # The driver forgets vGPUs and instances in both directions: whatever is there still was not planned for.
            ensure_idle(run, action.gpu, all_holders)
            step = f"functions {action.count}"
            run.call(action.gpu, step, lambda: backend.set_functions(action.gpu, action.count))
        case SetMixedSize():
            ensure_idle(run, action.gpu, lambda gpu: vgpu_holders(gpu.vgpus))
            step = f"mixed-size {'on' if action.on else 'off'}"
            run.call(action.gpu, step, lambda: backend.set_mixed_size(action.gpu, action.on))
        case CreateVgpu():
            run.call(action.gpu, creation_step(action), lambda: _create(run, action))
        case DestroyVgpu():
            _destroy(run, action)
        case SetPassthrough():
            ensure_idle(run, action.gpu, lambda gpu: _passthrough_holders(gpu, action.function))
            step = f"passthrough {'on' if action.on else 'off'} {action.function}".rstrip()
            run.call(action.gpu, step, lambda: backend.set_passthrough(action.gpu, action.on, action.function))
        case _:
            assert_never(action)


def _create(run: Run, action: CreateVgpu) -> None:
    backend = run.context.backend
    try:
        backend.create_vgpu(action.gpu, action.function, action.type_id, action.uuid)
    except InUseError:
        # libvirt makes the mdevs that it keeps as soon as their function appears: this very one is what was asked.
        gpu = backend.read_gpu(action.gpu)
        vgpu = _find(gpu, action)
        if vgpu is None or vgpu.type_id != action.type_id or not _has_uuids(gpu):
            raise


def _has_uuids(gpu: Gpu) -> bool:
    """Whether the kernel knows vGPUs by UUID. Where it does not, nobody can tell whose the one on a function is."""
    return gpu.virtual is not None and not gpu.uses_vendor_vfio


def _destroy(run: Run, action: DestroyVgpu) -> None:
    def holders(gpu: Gpu) -> Sequence[Holder]:
        vgpu = _find(gpu, action)
        return vgpu.holders if vgpu else ()

    vgpu = _find(ensure_idle(run, action.gpu, holders), action)
    if vgpu is None or (vgpu.type_id, vgpu.ownership_token) != (action.type_id, action.ownership_token):
        raise InUseError(
            f"GPU {action.gpu}: the vGPU on {action.function} is no longer the {action.type} that was to go",
            details=("somebody else changed this GPU in the meantime",),
            next_step="aliquot plan",
        )
    run.destroy_vgpu(action.gpu, vgpu)


def _find(gpu: Gpu, action: CreateVgpu | DestroyVgpu) -> Vgpu | None:
    """The vGPU by its function; by its UUID too, since one physical function may carry several."""
    found = (v for v in gpu.vgpus if v.function == action.function)
    return next((v for v in found if v.uuid == action.uuid), None)


def _passthrough_holders(gpu: Gpu, function: str) -> Sequence[Holder]:
    """Who would lose a GPU, or one virtual function of it, that changes its driver."""
    if not function:
        return all_holders(gpu)
    virtual_function = next((f for f in (gpu.virtual.functions if gpu.virtual else ()) if f.pci == function), None)
    on_function = vgpu_holders(v for v in gpu.vgpus if v.function == function)
    return tuple(dict.fromkeys((*(virtual_function.holders if virtual_function else ()), *on_function)))
