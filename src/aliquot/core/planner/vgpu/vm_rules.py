"""Rules on the devices of one VM, checked together before anything is attached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from aliquot.core.model.desired import RuleCode
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.plan import Blocker
from aliquot.core.model.vgpu_types import VgpuType

MAX_VGPUS_PER_VM = 16
"""vGPUs in one VM (open GPU kernel modules 595: MAX_VGPU_DEVICES_PER_VM)."""
Q_SERIES_ONLY = frozenset({"NVIDIA A2", "NVIDIA A16"})
"""Boards that allow several vGPUs in one VM only for the Q series.

Source: NVIDIA vGPU release notes, multiple vGPU support. The driver itself also accepts the C series.
"""
VmPolicy = Literal["nvidia", "driver"]
"""What NVIDIA supports, or what its driver accepts."""


class VmDevice(msgspec.Struct, frozen=True):
    """A GPU or vGPU of a VM."""

    gpu: Gpu
    type: VgpuType | None = None
    """None for the whole GPU or a virtual function of it."""
    ramfb: bool | None = None
    """None if not specified. The same holds for ``display``."""
    display: bool | None = None
    node: str = ""
    on_nvswitch: bool = False
    """Whether the GPU is on NVSwitch."""

    @property
    def product(self) -> str:
        return self.gpu.product

    @property
    def has_display(self) -> bool:
        """True if the guest can have a console on it: not for compute types and whole GPUs."""
        return self.type is not None and not self.type.series.startswith("C")

    def __str__(self) -> str:
        return self.type.name if self.type is not None else f"GPU {self.gpu.pci} in passthrough"


Rule = Callable[[Sequence[VmDevice], VmPolicy], Iterator[Blocker]]


def _blocker(rule: RuleCode, message: str, device: VmDevice | None = None, next_step: str | None = None) -> Blocker:
    gpu = device.gpu.pci if device is not None else ""
    step = next_step or (f"aliquot vgpu types {gpu}" if gpu else "aliquot vgpu list")
    return Blocker(rule, message, gpu, step=step)


def one_node(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Require that all devices of a VM are on one node."""
    nodes = sorted({d.node for d in devices if d.node})
    if len(nodes) > 1:
        yield _blocker("ONE_NODE", f"the devices are on {len(nodes)} nodes ({', '.join(nodes)}), but a VM runs on one")


def whole_or_shared(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Require that a GPU is either passed through, once, or shared."""
    whole = Counter(d.gpu.pci for d in devices if d.type is None and not _function_of(d))
    for pci in sorted({d.gpu.pci for d in devices if d.type is not None} & whole.keys()):
        yield _blocker("PASSTHROUGH", f"GPU {pci} cannot be passed through and have a vGPU", next_step="aliquot show")


def _function_of(device: VmDevice) -> bool:
    return not device.gpu.passthrough and bool(device.gpu.virtual and device.gpu.virtual.functions)


def fabric(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Refuse several whole GPUs on NVSwitch, which need a fabric partition that Fabric Manager activates before."""
    whole = [d for d in devices if d.on_nvswitch and (d.type.max == 1 if d.type else not _function_of(d))]
    if len(whole) > 1:
        listed = ", ".join(map(str, whole))
        why = f"{listed} are on NVSwitch: CUDA fails (error 802) until Fabric Manager activates their fabric partition"
        yield _blocker("FABRIC", f"{why}, which aliquot does not do", next_step="aliquot passthrough list")


def per_vm(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Allow several vGPUs only of types that permit it.

    On A2 and A16, NVIDIA supports only the Q series (policy ``nvidia``). The driver itself checks the limit of the type
    (policy ``driver``).
    """
    vgpus = [d for d in devices if d.type is not None]
    if len(vgpus) > MAX_VGPUS_PER_VM:
        yield _blocker("PER_VM", f"{len(vgpus)} vGPUs in one VM, the driver allows {MAX_VGPUS_PER_VM}")
    if len(vgpus) < 2:
        return
    checked: set[str] = set()
    for device in vgpus:
        each = device.type
        if each is None or each.name in checked:
            continue
        checked.add(each.name)
        count = sum(d.type is not None and d.type.name == each.name for d in vgpus)
        if each.per_vm < 2:
            why = f"{each.name} must be the only vGPU of a VM, this one has {len(vgpus)}"
            yield _blocker("PER_VM", why, device)
        elif count > each.per_vm:
            yield _blocker("PER_VM", f"{count} x {each.name} in one VM, the type allows {each.per_vm}", device)
        elif policy == "nvidia" and device.product in Q_SERIES_ONLY and each.series != "Q":
            why = f"{device.product} allows only Q-series vGPUs if a VM has several, not {each.name}"
            yield _blocker("PER_VM", why, device)


def series(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Require one board type and one series for several vGPUs of a VM, of any sizes.

    Source: NVIDIA vGPU user guide, multiple vGPUs. The driver does not check this.
    """
    vgpus = [d for d in devices if d.type is not None]
    kinds = {(d.product, d.type.series): d for d in vgpus if d.type is not None}
    if policy == "nvidia" and len(kinds) > 1:
        names = " and ".join(f"{letter} of {product}" for product, letter in kinds)
        why = f"vGPUs of different boards or series in one VM: {names}"
        yield _blocker("SERIES", why, list(kinds.values())[1])


def ramfb(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Allow one ramFB per VM, on a vGPU with its display on."""
    having = [d for d in devices if d.ramfb]
    if len(having) > 1:
        listed = ", ".join(map(str, having))
        yield _blocker("RAMFB", f"{len(having)} devices have ramFB ({listed}), a VM can have one", having[1])
    for device in having:
        if not device.has_display:
            yield _blocker("RAMFB", f"{device} has no display, so no ramFB either", device)
        elif device.display is False:
            yield _blocker("RAMFB", f"{device} has ramFB, which needs its display on", device)


def displays(devices: Sequence[VmDevice], policy: VmPolicy) -> Iterator[Blocker]:
    """Refuse a display on compute types and whole GPUs, which have none that the hypervisor can show."""
    for device in devices:
        if device.display and not device.has_display:
            yield _blocker("DISPLAY", f"{device} cannot have a display", device)


RULES: tuple[Rule, ...] = (one_node, whole_or_shared, fabric, per_vm, series, ramfb, displays)


def check(devices: Sequence[VmDevice], policy: VmPolicy = "nvidia") -> tuple[Blocker, ...]:
    """Return every reason why one VM cannot have these devices together.

    ``policy`` is what NVIDIA supports (``nvidia``), or what the driver accepts (``driver``).
    """
    return tuple(blocker for rule in RULES for blocker in rule(devices, policy))


def default_ramfb(devices: Sequence[VmDevice]) -> tuple[VmDevice, ...]:
    """Return the same devices with ramFB on exactly one.

    It is the one that requests it, else the first that can have it and does not specify it. None has ramFB if none can,
    or if all refuse it.
    """
    requested = next((n for n, d in enumerate(devices) if d.ramfb), None)
    free = (n for n, d in enumerate(devices) if d.has_display and d.ramfb is None and d.display is not False)
    chosen = requested if requested is not None else next(free, None)

    def one(number: int, device: VmDevice) -> VmDevice:
        if device.ramfb is not None:
            return device
        if number != chosen:
            return msgspec.structs.replace(device, ramfb=False)
        return msgspec.structs.replace(device, ramfb=True, display=True)

    return tuple(one(n, d) for n, d in enumerate(devices))
