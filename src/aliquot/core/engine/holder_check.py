"""The check before each action that destroys: a fresh read of the holders, and the reaction of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from aliquot.core.engine.action_text import HolderWait, progress_line
from aliquot.core.engine.run import POLL_S, Run
from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.core.model.plan import Policy
from aliquot.errors import InUseError

VGPU: Final = "vgpu"


def ensure_idle(run: Run, pci: str, holders: Callable[[Gpu], Sequence[Holder]]) -> Gpu:
    """Read the GPU again until it has no holders, by the policy: refuse, wait, or end the holders.

    Returns the GPU as read. Raises InUseError, which names the holders.
    """
    clock, policy = run.context.clock, run.policy
    deadline = clock.now() + policy.timeout_s
    reported = False
    while True:
        gpu = run.context.backend.read_gpu(pci)
        found = holders(gpu)
        if not found:
            return gpu
        if policy.held == "force":
            for holder in found:
                _end(run, gpu, holder)
            if clock.now() < deadline:
                clock.sleep(POLL_S)
                continue
        elif policy.held == "wait" and clock.now() < deadline and not run.stopping:
            if not reported:
                run.report(progress_line(pci, HolderWait(tuple(found), policy.timeout_s)))
                reported = True
            clock.sleep(POLL_S)
            continue
        raise _held_error(pci, found, policy)


def vgpu_holders(vgpus: Iterable[Vgpu]) -> tuple[Holder, ...]:
    """Return the holders of vGPUs: the VMs that have one open, else the vGPU itself."""
    return tuple(h for v in vgpus for h in v.holders or (Holder(VGPU, v.function, v.type),))


def all_holders(gpu: Gpu) -> tuple[Holder, ...]:
    """Return every holder of a GPU: of the GPU, its instances, vGPUs and virtual functions."""
    inside = tuple(h for i in gpu.instances for h in (*i.holders, *(h for c in i.compute_instances for h in c.holders)))
    functions = tuple(h for f in (gpu.virtual.functions if gpu.virtual else ()) for h in f.holders)
    found = (*gpu.holders, *vgpu_holders(gpu.vgpus), *functions, *inside)
    return tuple(dict.fromkeys(h for h in found if not _reported_by_vm(h, gpu)))


def _reported_by_vm(holder: Holder, gpu: Gpu) -> bool:
    """Report whether the holder is a vGPU that a VM has open: the VM is listed instead."""
    return holder.kind == VGPU and any(v.function == holder.id and v.held for v in gpu.vgpus)


def _end(run: Run, gpu: Gpu, holder: Holder) -> None:
    """End a holder. A vGPU that VMs have open ends with them and is destroyed later; an idle one is destroyed now."""
    vgpu = next((v for v in gpu.vgpus if holder.kind == VGPU and v.function == holder.id), None)
    if vgpu is not None:
        for vm in vgpu.holders:
            _end(run, gpu, vm)
        if not vgpu.holders:
            run.report(progress_line(gpu.pci, f"destroying {holder}"))
            run.destroy_vgpu(gpu.pci, vgpu)
        return
    if not holder.id.isdigit():
        raise InUseError(
            f"GPU {gpu.pci} is held by {holder}, which is not a process that can be ended here",
            next_step="end it where it runs, then run again",
        )
    run.report(progress_line(gpu.pci, f"ending {holder}"))
    run.context.host.terminate(int(holder.id))


def _held_error(pci: str, found: Sequence[Holder], policy: Policy) -> InUseError:
    waited = "" if policy.held == "refuse" else f" after {policy.timeout_s:g} s"
    more = "add --policy wait, or --policy force" if policy.held == "refuse" else "raise --timeout, or --policy force"
    return InUseError(
        f"GPU {pci} is held by {', '.join(str(h) for h in found)}{waited}",
        details=(f"policy {policy.held} does not destroy what is held",),
        next_step=f"end the holders and run again, or {more}",
    )
