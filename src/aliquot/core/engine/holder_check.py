"""The fresh look before each act that destroys: who is on the thing now, and what the policy says to that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aliquot.core.engine.run import POLL_S, Run
from aliquot.core.model.inventory import Gpu, Holder, Vgpu
from aliquot.core.model.plan import Policy
from aliquot.errors import InUseError

VGPU = "vgpu"


def ensure_idle(run: Run, pci: str, holders: Callable[[Gpu], Sequence[Holder]]) -> Gpu:
    """Read the GPU again until nobody is on it, as the policy says: refuse, wait, or end the holders. Returns what was
    read; raises InUseError, which names the holders.
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
                names = ", ".join(str(h) for h in found)
                run.report(f"GPU {pci}: waiting for {names}, {policy.timeout_s:g} s at most")
                reported = True
            clock.sleep(POLL_S)
            continue
        raise _held_error(pci, found, policy)


def vgpu_holders(vgpus: Iterable[Vgpu]) -> tuple[Holder, ...]:
    """Who stands behind some vGPUs: the virtual machines that have one open, else the vGPU itself."""
    return tuple(h for v in vgpus for h in v.holders or (Holder(VGPU, v.function, v.type),))


def all_holders(gpu: Gpu) -> tuple[Holder, ...]:
    """Who is on a GPU in any way: processes, instances, vGPUs, virtual functions."""
    inside = tuple(h for i in gpu.instances for h in (*i.holders, *(h for c in i.compute_instances for h in c.holders)))
    functions = tuple(h for f in (gpu.virtual.functions if gpu.virtual else ()) for h in f.holders)
    found = (*gpu.holders, *vgpu_holders(gpu.vgpus), *functions, *inside)
    return tuple(dict.fromkeys(h for h in found if not _reported_by_vm(h, gpu)))


def _reported_by_vm(holder: Holder, gpu: Gpu) -> bool:
    """A vGPU that a virtual machine has open is said by that machine."""
    return holder.kind == VGPU and any(v.function == holder.id and v.held for v in gpu.vgpus)


def _end(run: Run, gpu: Gpu, holder: Holder) -> None:
    """End a holder. A vGPU ends with its virtual machine, if it has one, and is then destroyed; an idle one at once."""
    vgpu = next((v for v in gpu.vgpus if holder.kind == VGPU and v.function == holder.id), None)
    if vgpu is not None:
        for vm in vgpu.holders:
            _end(run, gpu, vm)
        if not vgpu.holders:
            run.report(f"GPU {gpu.pci}: destroying {holder}")
            run.destroy_vgpu(gpu.pci, vgpu)
        return
    if not holder.id.isdigit():
        raise InUseError(
            f"GPU {gpu.pci} is held by {holder}, which is no process that could be ended here",
            next_step="end it where it runs, then run again",
        )
    run.report(f"GPU {gpu.pci}: ending {holder}")
    run.context.host.terminate(int(holder.id))


def _held_error(pci: str, found: Sequence[Holder], policy: Policy) -> InUseError:
    waited = "" if policy.held == "refuse" else f" after {policy.timeout_s:g} s"
    more = "add --policy wait, or --policy force" if policy.held == "refuse" else "raise --timeout, or --policy force"
    return InUseError(
        f"GPU {pci} is held by {', '.join(str(h) for h in found)}{waited}",
        details=(f"policy {policy.held}: what is held is not destroyed",),
        next_step=f"end the holders and run again, or {more}",
    )
