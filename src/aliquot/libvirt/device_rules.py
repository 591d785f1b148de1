"""One device of a virtual machine, judged on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from shlex import quote

import msgspec

from aliquot.core.model.inventory import Gpu, Holder, Inventory
from aliquot.core.model.plan import Blocker
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.libvirt.identify import VFIO_PCI, Known, by_pci, former, names, users
from aliquot.libvirt.models import MDEV, PCI, Domain, Hostdev, NodeDevice

NVIDIA = "nvidia"
"""The policy that keeps to NVIDIA's list of what may be several in one VM; ``driver`` takes what the driver takes."""


VARIANT_DRIVERS = (10, 0)
"""From this version on libvirt takes a device whose VFIO driver is not vfio-pci. 9.0 was seen to refuse it ("Unmanaged
PCI device ... must be manually detached"); the patches came between 9.9 and 10.0 (libvirt devel list, January 2024).
"""


class Around(msgspec.Struct, frozen=True):
    """What else bears on a machine: the other domains, the mdevs that libvirt sees, and, by the PCI address of a whole
    GPU, the devices of its IOMMU group that are not part of its board (with their drivers); ``version`` is libvirt's.
    """

    domains: tuple[Domain, ...] = ()
    mdevs: tuple[NodeDevice, ...] = ()
    foreign: Mapping[str, tuple[str, ...]] = {}
    policy: str = NVIDIA
    version: tuple[int, int] | None = None


class Row(msgspec.Struct, frozen=True):
    """One device: ``where`` is ``definition``, ``running`` or ``both``; ``problems`` stop the machine from starting, or
    its guest from using the device.
    """

    device: str
    what: str
    where: str
    problems: tuple[Blocker, ...] = ()
    notes: tuple[str, ...] = ()


def judged(inventory: Inventory, domain: Domain, known: Known, around: Around) -> Row:
    """What one device is, and what is wrong with it. ``known`` need not be in the machine yet."""
    problems: list[Blocker] = []
    notes: list[str] = []
    if known.vgpu is not None and known.gpu is not None:
        what = f"{known.vgpu.type} of GPU {known.gpu.index} ({known.vgpu.function})"
        problems += _vgpu(domain, known, known.gpu)
        notes += _too_old(known, around)
    elif known.whole and known.gpu is not None:
        what = f"GPU {known.gpu.index}, {known.gpu.product}, whole"
        problems += _whole(domain, known, known.gpu, around)
    elif known.function is not None and known.gpu is not None:
        what = f"virtual function {known.function.number} of GPU {known.gpu.index}"
        problems += _function(domain, known, known.gpu)
    elif known.off and known.gpu is not None:
        what = f"virtual function of GPU {known.gpu.index}, switched off"
        problems.append(_switched_off(known.gpu, known.hostdev.address))
    else:
        what, absent, said = _absent(inventory, known, around)
        problems += absent
        notes += said
    if known.ours:
        problems += _host(inventory, known)
        problems += _held(domain, known, around)
        notes += _also(domain, known, around)
    return Row(known.hostdev.shown, what, _where(domain, known), tuple(problems), tuple(notes))


def _where(domain: Domain, known: Known) -> str:
    live, config = known.hostdev.key in keys(domain.live), known.hostdev.key in keys(domain.config)
    return "both" if live and config else "running" if live else "definition"


def _vgpu(domain: Domain, known: Known, gpu: Gpu) -> list[Blocker]:
    hostdev = known.hostdev
    wrong = ""
    if hostdev.kind == PCI and not by_pci(gpu):
        wrong = f"the vGPU of {hostdev.address} is an mdev on this host: the VM must name its UUID"
    elif hostdev.kind == MDEV and by_pci(gpu) and known.vgpu is not None:
        wrong = f"this kernel has no mdevs: the vGPU is the PCI function {known.vgpu.function} now"
    if wrong:
        return [_again("WORLD", wrong, domain, known, gpu)]
    if hostdev.kind == PCI and hostdev.managed:
        wrong = (
            f"{hostdev.address} carries a vGPU and has managed='yes': libvirt would bind it to vfio-pci, which the "
            "driver refuses (EINVAL)"
        )
        return [_again("MANAGED", wrong, domain, known, gpu)]
    return []


def _too_old(known: Known, around: Around) -> list[str]:
    if known.hostdev.kind != PCI or around.version is None or around.version >= VARIANT_DRIVERS:
        return []
    have, want = (".".join(map(str, v)) for v in (around.version, VARIANT_DRIVERS))
    return [
        f"libvirt {have} starts no VM with {known.hostdev.address}: it knows no VFIO driver but vfio-pci, and the vGPU "
        f"needs NVIDIA's own (libvirt {want} or later does)"
    ]


def _again(rule: str, wrong: str, domain: Domain, known: Known, gpu: Gpu) -> Blocker:
    """A device that only has to be attached anew."""
    message = f"{wrong}; detach it, and attach {known.vgpu.function if known.vgpu else 'it'} again"
    return Blocker(rule, message, gpu.pci, next_step=detach_command(domain, known.hostdev.key))


def _whole(domain: Domain, known: Known, gpu: Gpu, around: Around) -> list[Blocker]:
    found = []
    if not gpu.passthrough and not known.hostdev.managed:
        found.append(
            Blocker(
                "NOT_BOUND",
                f"GPU {gpu.pci} is not bound to vfio-pci, and managed='no' leaves that to us",
                gpu.pci,
                next_step=f"aliquot passthrough enable {gpu.pci}",
            )
        )
    if gpu.virtual is not None and gpu.virtual.enabled:
        message = f"GPU {gpu.pci} has {len(gpu.virtual.functions)} virtual functions on: it cannot be handed out whole"
        found.append(Blocker("FUNCTIONS_IN_USE", message, gpu.pci, next_step=f"aliquot vgpu disable {gpu.pci}"))
    foreign = [each for each in around.foreign.get(gpu.pci, ()) if each.split()[0] not in keys(domain.hostdevs)]
    if foreign:
        message = (
            f"the IOMMU group of GPU {gpu.pci} holds other devices, which the VM does not get: {', '.join(foreign)}"
        )
        found.append(Blocker("IOMMU_GROUP", message, gpu.pci, next_step=f"aliquot passthrough check {gpu.pci}"))
    return found


def _function(domain: Domain, known: Known, gpu: Gpu) -> list[Blocker]:
    function = known.function
    if function is None or function.driver == VFIO_PCI:
        return []
    return [
        Blocker(
            "NO_VGPU",
            f"virtual function {function.pci} carries no vGPU: it has no type",
            gpu.pci,
            next_step=f"aliquot vgpu types {gpu.pci}",
        )
    ]


def _switched_off(gpu: Gpu, address: str) -> Blocker:
    remembered = next((v for v in gpu.virtual.remembered if v.function == address), None) if gpu.virtual else None
    if remembered is not None:
        message = f"{address} is gone since the last reboot; it carried {remembered.type}"
        return Blocker("NO_FUNCTION", message, gpu.pci, next_step="aliquot restore --boot")
    message = f"{address} does not exist while the virtual functions of GPU {gpu.pci} are off"
    return Blocker("NO_FUNCTION", message, gpu.pci, next_step=f"aliquot vgpu enable {gpu.pci}")


def _absent(inventory: Inventory, known: Known, around: Around) -> tuple[str, list[Blocker], list[str]]:
    """A device that is none of ours: another card, somebody else's mdev, or an mdev that does not exist."""
    hostdev = known.hostdev
    if hostdev.kind == PCI:
        return "no NVIDIA GPU", [], ["not judged: it is no GPU of this node"]
    other = next((m for m in around.mdevs if m.uuid == hostdev.uuid and m.active), None)
    if other is not None:
        return f"mdev of {other.parent}, type {other.type}", [], ["not judged: it is no vGPU of NVIDIA's"]
    whose = former(inventory, hostdev.uuid)
    waiting = next((m for m in around.mdevs if m.uuid == hostdev.uuid), None)
    if waiting is not None:
        message = f"mdev {hostdev.uuid} is defined ({waiting.type} on {waiting.parent}), and not started"
        return "mdev, not started", [Blocker("NO_MDEV", message, next_step=_start(hostdev.uuid))], []
    message = f"there is no mdev {hostdev.uuid}"
    if whose is None:
        return "nothing", [Blocker("NO_MDEV", message, next_step="aliquot vgpu list")], []
    gpu, remembered, function = whose
    if remembered is None:
        message += f": it is the UUID that a vGPU on {function} of GPU {gpu.index} gets"
        return "nothing", [Blocker("NO_MDEV", message, gpu.pci, next_step=f"aliquot vgpu types {gpu.pci}")], []
    message += f" since the last reboot: it was {remembered.type} on {function}"
    there = {v.uuid for v in gpu.vgpus}
    gone = [v for v in gpu.virtual.remembered if v.uuid not in there] if gpu.virtual else []
    wish = plan_command(gpu, Counter(v.type for v in (*gpu.vgpus, *gone)))
    return "nothing", [Blocker("NO_MDEV", message, gpu.pci, suggestion=wish, next_step="aliquot restore --boot")], []


def _start(uuid: str) -> str:
    return f"aliquot libvirt nodedev start {uuid}"


def _host(inventory: Inventory, known: Known) -> list[Blocker]:
    host = inventory.host
    if host is None:
        return []
    gpu = known.gpu.pci if known.gpu else ""
    found = []
    if not host.iommu and known.hostdev.kind == PCI:
        found.append(
            Blocker(
                "NO_IOMMU",
                "the IOMMU is off: no PCI function can be given to a VM",
                gpu,
                next_step="switch it on in the firmware and with intel_iommu=on (AMD: amd_iommu=on), then reboot",
            )
        )
    if not host.vfio:
        found.append(Blocker("NO_VFIO", "the VFIO modules are not loaded", gpu, next_step="modprobe vfio-pci"))
    return found


def _held(domain: Domain, known: Known, around: Around) -> list[Blocker]:
    """Who else has it right now: another running VM by its XML, or a process that has the handle open."""
    elsewhere = users(tuple(d for d in around.domains if d.running), but=domain.uuid)
    holders: tuple[Holder, ...] = tuple(Holder("vm", elsewhere[n]) for n in sorted(names(known)) if n in elsewhere)
    seen = known.vgpu.holders if known.vgpu else known.function.holders if known.function else ()
    if known.whole and known.gpu is not None and (known.gpu.passthrough or known.hostdev.managed):
        seen = known.gpu.holders
    if domain.running and known.hostdev.key in keys(domain.live):
        seen = ()  # that is this machine itself
    holders += tuple(h for h in seen if h.name not in {*elsewhere.values(), domain.name})
    if not holders:
        return []
    gpu = known.gpu.pci if known.gpu else ""
    message = f"{known.hostdev.shown} is held by {', '.join(map(str, holders))}"
    return [Blocker("HELD", message, gpu, holders=holders, next_step=detach_command(domain, known.hostdev.key))]


def _also(domain: Domain, known: Known, around: Around) -> list[str]:
    """Machines that are shut off and have the same device: only one of them can run at a time."""
    off = users(tuple(d for d in around.domains if not d.running), but=domain.uuid)
    also = sorted({off[n] for n in names(known) if n in off})
    return [f"{', '.join(also)} has it in its definition too: only one of them can run at a time"] if also else []


def detach_command(domain: Domain, key: str) -> str:
    """The command that takes a device from a machine."""
    return f"aliquot libvirt detach {quote(domain.name)} {key}"


def keys(hostdevs: Iterable[Hostdev]) -> set[str]:
    return {h.key for h in hostdevs}
