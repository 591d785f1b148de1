"""The virtual functions of a GPU: the effects of writing ``sriov_numvfs`` and of NVIDIA's ``sriov-manage``."""

from __future__ import annotations

import errno

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel import devices, pci, rules
from aliquot.sim.kernel.devices import SimPciFunction, refuse
from aliquot.sim.node import SimNode
from aliquot.sim.state import FunctionState, SchedulerState


def set_count(gpu: SimGpu, text: str) -> None:
    """Write ``sriov_numvfs``. NVIDIA's vGPU driver lets only its own tool change the number (EPERM); its ordinary
    driver and vfio-pci do not support it (ENOENT). The order of checks is the kernel's (drivers/pci/iov.c).
    """
    try:
        wanted = int(text.strip(), 0)
    except ValueError:
        raise refuse(errno.EINVAL) from None
    if not 0 <= wanted < 1 << 16:
        raise refuse(errno.EINVAL)
    if wanted > pci.total_functions(gpu.state):
        raise refuse(errno.ERANGE)
    if wanted == len(gpu.state.functions):
        return
    if gpu.state.driver != devices.NVIDIA or not rules.vgpu_framework(gpu.state):
        raise refuse(errno.ENOENT)
    if wanted and gpu.state.functions:
        raise refuse(errno.EBUSY)
    raise refuse(errno.EPERM)


def enable(node: SimNode, gpu: SimGpu) -> None:
    """Enable all virtual functions, new or again. The driver releases the GPU for it, so GPU instances, vGPUs and
    mixed-size mode and scheduler are lost; MIG mode stays.
    """
    state = gpu.state
    disable(gpu)
    count = pci.total_functions(state)
    now, delay = node.environment.now(), node.faults.function_delay(state.index)
    groups = pci.free_groups(node.state, count)
    made = [FunctionState(number, groups[number]) for number in range(count)]
    for function in made:
        if delay:
            function.visible = now + delay * (function.number + 1) / (count + 1)
            function.ready = now + delay * (function.number + 2) / (count + 1)
        if state.autoprobe:
            try:
                devices.attach(node, SimPciFunction(gpu, pci.function_address(state, function.number), function))
            except OSError:
                continue  # a driver refused it: the function stays unbound
    state.functions = made


def disable(gpu: SimGpu) -> None:
    gpu.state.functions = []
    gpu.state.vgpus = []
    gpu.state.instances = []
    gpu.state.mixed = False
    gpu.state.scheduler = SchedulerState()
    gpu.state.locked = False


def lock(node: SimNode, gpu: SimGpu, text: str) -> None:
    """Write ``unbindLock``: 1 takes it if the GPU has no clients and no fault makes it busy; the file then reads 1."""
    if text.strip() not in ("0", "1"):
        raise refuse(errno.EINVAL)
    free = not devices.in_use(node, gpu) and not node.faults.lock_busy(gpu.state.index)
    gpu.state.locked = text.strip() == "1" and free


def manage(node: SimNode, gpu: SimGpu, on: bool) -> None:
    """Run ``sriov-manage -e`` or ``-d`` for one GPU. Raises EBUSY if the unbindLock cannot be taken, ENOTSUP if the
    board or its driver has no virtual functions.
    """
    if not pci.total_functions(gpu.state) or not rules.vgpu_framework(gpu.state):
        raise refuse(errno.ENOTSUP)
    if devices.in_use(node, gpu) or node.faults.lock_busy(gpu.state.index):
        raise refuse(errno.EBUSY)
    if on:
        enable(node, gpu)
    else:
        disable(gpu)
