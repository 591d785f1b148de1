"""Which devices a virtual machine gets: free vGPUs of the asked types, or devices that were named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from aliquot.core.model import vgpu_types as tables
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Vgpu
from aliquot.core.planner.vgpu.naming import plan_command
from aliquot.errors import BlockedError, ConfigError
from aliquot.libvirt.identify import VFIO_PCI, Known, hostdev_of, names, vgpus
from aliquot.libvirt.models import PCI, Hostdev

Busy = Mapping[str, str]
"""Device (mdev UUID, PCI address) to the VM that has it."""


class Ask(msgspec.Struct, frozen=True):
    """What is wanted: vGPU types with counts, on ``gpus`` (PCI addresses; empty for any), and devices by name:
    functions, vGPU UUIDs, PCI addresses of whole GPUs.
    """

    types: tuple[tuple[str, int], ...] = ()
    gpus: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


def pick(inventory: Inventory, ask: Ask, busy: Busy) -> tuple[Known, ...]:
    """The devices, in the order that was asked, none twice. Raises BlockedError with the rule, ConfigError for a type
    that is in no table.
    """
    found: list[Known] = []
    for word in ask.devices:
        found.append(named(inventory, word, busy))
    taken = {k.hostdev.key for k in found}
    if len(taken) < len(found):
        raise ConfigError("a device is named twice", details=tuple(sorted(k.hostdev.shown for k in found)))
    for name, count in ask.types:
        wanted = _type_name(name)
        chosen = _free(inventory, wanted, ask.gpus, busy, taken)[:count]
        if len(chosen) < count:
            raise _too_few(inventory, wanted, count, ask.gpus, busy)
        found += chosen
        taken |= {k.hostdev.key for k in chosen}
    return tuple(found)


def _type_name(name: str) -> str:
    """The full name, or the short one where that is what was typed. Raises ConfigError for one in no table."""
    matches = {
        t.name for table in tables.tables() for t in table.types if name.lower() in (t.name.lower(), t.short.lower())
    }
    if not matches:
        error = ConfigError(f"no vGPU type is called {name!r}", next_step="aliquot vgpu types")
        error.code = "UNKNOWN_TYPE"
        raise error
    return name


def is_type(vgpu: Vgpu, name: str) -> bool:
    """Whether a vGPU has the type of that name, full or short."""
    return name.lower() in (vgpu.type.lower(), vgpu.type.rpartition(" ")[2].lower())


def _free(inventory: Inventory, name: str, gpus: tuple[str, ...], busy: Busy, taken: set[str]) -> list[Known]:
    """Free ones in the order of GPUs and functions."""
    found = []
    for gpu, vgpu in vgpus(inventory):
        known = Known(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
        if is_type(vgpu, name) and (not gpus or gpu.pci in gpus) and known.hostdev.key not in taken:
            found += [known] if holder(known, busy) is None else []
    return found


def holder(known: Known, busy: Busy) -> Holder | None:
    """Who has a device: a process with its handle open, or a VM that has it in its XML."""
    open_in = known.vgpu.holders if known.vgpu else known.function.holders if known.function else ()
    if not open_in and known.whole and known.gpu is not None:
        open_in = known.gpu.holders
    if open_in:
        return open_in[0]
    vm = next((busy[name] for name in sorted(names(known)) if name in busy), None)
    return Holder("vm", vm) if vm is not None else None


def _too_few(inventory: Inventory, name: str, count: int, gpus: tuple[str, ...], busy: Busy) -> BlockedError:
    every = [(g, v) for g, v in vgpus(inventory) if is_type(v, name) and (not gpus or g.pci in gpus)]
    rows = []
    for gpu, vgpu in every:
        who = holder(Known(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu), busy)
        rows.append(f"{vgpu.type} on {vgpu.function}: {f'{who} has it' if who else 'free'}")
    free = sum(row.endswith("free") for row in rows)
    error = BlockedError(
        f"{count} x {name} asked, {free} free" + (f" of {len(every)}" if every else ": there is none"),
        details=tuple(rows),
        next_step=_more(inventory, name, count - free, gpus) or "aliquot vgpu list",
    )
    error.code = "NO_VGPU"
    return error


def _more(inventory: Inventory, name: str, missing: int, gpus: tuple[str, ...]) -> str:
    """The command that plans the missing vGPUs beside those that there are, on the first GPU that could hold so many;
    where none could, the one that shows why.
    """
    shows = ""
    for gpu in inventory.gpus:
        table = inventory.vgpu_table(gpu)
        if table is None or (gpus and gpu.pci not in gpus):
            continue
        chosen = next((t for t in table.types if name.lower() in (t.name.lower(), t.short.lower())), None)
        if chosen is None:
            continue
        counts = _counts(gpu, chosen.name, missing)
        if counts[chosen.name] <= chosen.max:
            return plan_command(gpu, counts)
        shows = shows or f"aliquot vgpu types {gpu.pci}"
    return shows


def _counts(gpu: Gpu, name: str, more: int) -> Counter[str]:
    return Counter(v.type for v in gpu.vgpus) + Counter({name: more})


def named(inventory: Inventory, word: str, busy: Busy) -> Known:
    """The device that a word names: a virtual function or a whole GPU by PCI address, a vGPU by UUID. Raises
    BlockedError where there is none, or somebody has it.
    """
    known = _resolve(inventory, word.lower())
    who = holder(known, busy)
    if who is not None:
        raise _refuse("HELD", f"{who} has {known.hostdev.shown}", "aliquot vgpu list")
    return known


def _resolve(inventory: Inventory, word: str) -> Known:
    for gpu, vgpu in vgpus(inventory):
        if word == vgpu.uuid or (word == vgpu.function and vgpu.function != gpu.pci):
            return Known(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
    for gpu in inventory.gpus:
        if word == gpu.pci:
            return _whole(gpu)
        functions = gpu.virtual.functions if gpu.virtual else ()
        for function in functions:
            if word == function.pci:
                if function.driver != VFIO_PCI:
                    raise _refuse(
                        "NO_VGPU", f"virtual function {word} carries no vGPU", f"aliquot vgpu types {gpu.pci}"
                    )
                return Known(Hostdev(PCI, address=word), gpu=gpu, function=function)
        if gpu.virtual and word in gpu.virtual.addresses:
            raise _refuse(
                "NO_FUNCTION", f"{word} is a virtual function that is switched off", f"aliquot vgpu enable {gpu.pci}"
            )
    raise _refuse("NO_VGPU", f"there is no vGPU, virtual function or GPU {word}", "aliquot vgpu list")


def _whole(gpu: Gpu) -> Known:
    """A whole GPU: bound to vfio-pci already, or left for libvirt to bind when the VM starts."""
    if gpu.virtual is not None and gpu.virtual.enabled:
        raise _refuse(
            "FUNCTIONS_IN_USE",
            f"GPU {gpu.pci} has {len(gpu.virtual.functions)} virtual functions: it cannot be handed out whole",
            f"aliquot vgpu disable {gpu.pci}",
        )
    if gpu.instances and not gpu.passthrough:
        raise _refuse("HELD", f"GPU {gpu.pci} is divided by MIG", f"aliquot plan --gpu {gpu.pci} --mig disabled")
    return Known(Hostdev(PCI, address=gpu.pci, managed=not gpu.passthrough), gpu=gpu, whole=True)


def _refuse(code: str, message: str, next_step: str) -> BlockedError:
    error = BlockedError(message, next_step=next_step)
    error.code = code
    return error
