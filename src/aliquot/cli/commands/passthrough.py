"""``aliquot passthrough``: whole GPUs and virtual functions for one virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import device_change as sharing
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.cli.framework.views import vgpu_view as vgpu_views
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, VirtualFunction
from aliquot.core.rendering import mig_picture
from aliquot.errors import BlockedError, UsageError

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

VFIO = "vfio-pci"


def run(args: Args) -> int:
    return {"list": _list, "check": _check, "enable": _change, "disable": _change}[args.verb](args)


def _change(args: Args) -> int:
    words = node.required_gpu_words(args)
    return sharing.change(args, words, lambda inventory: _desired(inventory, words, args.verb == "enable"))


def _desired(inventory: Inventory, words: Sequence[str], on: bool) -> list[DesiredGpu]:
    """Return the desired state: whole GPUs, and functions beside those of the same GPU that are passed through."""
    whole: dict[str, DesiredGpu] = {}
    functions: dict[str, set[str]] = {}
    for word in ",".join(words).split(","):
        for gpu, function in devices(inventory, word.strip()):
            if function is None:
                whole[gpu.pci] = DesiredGpu(gpu.pci, mig=None, instances=None, passthrough=on)
                continue
            bound = functions.setdefault(gpu.pci, {f.pci for f in _virtual(gpu).functions if f.driver == VFIO})
            (bound.add if on else bound.discard)(function.pci)
    bindings = (
        DesiredGpu(pci, mig=None, instances=None, vfio_bound=tuple(sorted(bound))) for pci, bound in functions.items()
    )
    return [*whole.values(), *bindings]


def device(inventory: Inventory, words: Sequence[str]) -> tuple[Gpu, VirtualFunction | None]:
    """Return the one device that the words name. Raises BlockedError, and UsageError if they name several."""
    found = [each for word in ",".join(words).split(",") for each in devices(inventory, word.strip())]
    if len(found) > 1:
        known = tuple(function.pci if function else gpu.pci for gpu, function in found)
        raise UsageError(
            f"{' '.join(words)!r} names {len(found)} GPUs",
            details=known,
            next_step=f"aliquot passthrough check {known[0]}",
        )
    return found[0]


def devices(inventory: Inventory, word: str) -> list[tuple[Gpu, VirtualFunction | None]]:
    """Return the GPUs that a word names, or one of their virtual functions. Raises BlockedError."""
    wanted = word.lower()
    for gpu in inventory.gpus:
        virtual = _virtual(gpu)
        for function in virtual.functions:
            if wanted in (function.pci, function.pci.partition(":")[2]):
                return [(gpu, function)]
        if any(wanted in (pci, pci.partition(":")[2]) for pci in virtual.addresses):
            raise BlockedError(
                f"{word} is a virtual function of GPU {gpu.pci}, whose virtual functions are disabled",
                code="NO_FUNCTION",
                next_step=f"aliquot vgpu enable {gpu.pci}",
            )
    return [(gpu, None) for gpu in node.gpus(inventory, [word])]


def _virtual(gpu: Gpu) -> GpuVirtualization:
    return gpu.virtual or GpuVirtualization()


def _list(args: Args) -> int:
    inventory = node.inventory(args)
    gpus = node.gpus(inventory, node.gpu_words(args))
    rows = [row for gpu in gpus for row in _rows(gpu)]
    document = output.build(
        "PassthroughDevices",
        node=inventory.node,
        host=inventory.host,
        gpus=[_plain(g) for g in gpus],
    )
    text = "\n".join(
        [f"{inventory.node}   {_host(inventory)}", "", *draw.table([("device", "what", "driver", "group", ""), *rows])]
    )
    output.emit(document, args.output, text if inventory.gpus else f"{inventory.node} has no GPU")
    return 0


def _host(inventory: Inventory) -> str:
    host = inventory.host
    if host is None:
        return "the kernel's support for virtual machines was not read"
    return f"IOMMU {'on' if host.iommu else 'off'}   VFIO modules {'loaded' if host.vfio else 'not loaded'}"


def _rows(gpu: Gpu) -> list[tuple[str, ...]]:
    virtual = _virtual(gpu)
    who = vgpu_views.state((*gpu.holders,))
    if virtual.functions:
        who = f"{len(virtual.functions)} virtual functions are on"
    driver = virtual.driver or "none"
    rows: list[tuple[str, ...]] = [
        (gpu.pci, f"GPU {gpu.index} {mig_picture.product(gpu)}", driver, _number(virtual.iommu_group), who)
    ]
    carries = {v.function: v.type for v in gpu.vgpus}
    for function in virtual.functions:
        if function.driver == VFIO or function.holders:
            what = carries.get(function.pci, f"VF {function.number}")
            state = vgpu_views.state(function.holders)
            rows.append((function.pci, what, function.driver or "none", _number(function.iommu_group), state))
    return rows


def _number(group: int | None) -> str:
    return "-" if group is None else str(group)


def _plain(gpu: Gpu) -> dict[str, Any]:
    virtual = _virtual(gpu)
    return {
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "index": gpu.index,
        "product": gpu.product,
        "passthrough": gpu.passthrough,
        "driver": virtual.driver,
        "iommu_group": virtual.iommu_group,
        "group_members": virtual.group_members,
        "holders": gpu.holders,
        "functions": virtual.functions,
    }


def _check(args: Args) -> int:
    from aliquot.core.planner.plan import plan

    with node.connected(args) as connection:
        inventory = connection.backend.read()
        words = node.required_gpu_words(args)
        gpu, function = device(inventory, words)
        pci = function.pci if function else gpu.pci
        already = (function.driver if function else _virtual(gpu).driver) == VFIO
        members = _members(connection, function.iommu_group if function else _virtual(gpu).iommu_group)
        refusal = None if already else _refusal(connection, pci)
    made = plan(inventory, Desired(tuple(_desired(inventory, words, True)), name="passthrough check"))
    possible = not made.blocked and refusal is None
    document = output.build(
        "PassthroughCheck",
        node=inventory.node,
        device=pci,
        possible=possible,
        already=already,
        host=inventory.host,
        members=[{"pci": address, "driver": driver} for address, driver in members],
        holders=function.holders if function else gpu.holders,
        blockers=made.blockers,
        notes=made.notes,
        error=refusal.document() if refusal else None,
    )
    verdict = "already passed through" if already else "can be passed through" if possible else "not possible now"
    if made.notes and not already and possible:
        verdict += ", but see the note"
    output.emit(document, args.output, _checked(inventory, gpu, function, members, verdict))
    if args.output == "text":
        for note in made.notes:
            streams.note(f"note: {note}")
    if made.blocked and args.output == "text":
        streams.error(plan_views.blockers(made, args.typed_node))
    elif refusal is not None:
        raise refusal
    return 20 if made.blocked else 0


def _refusal(connection: Connection, pci: str) -> BlockedError | None:
    """Return why the kernel would refuse it: no IOMMU, or other devices in the same IOMMU group."""
    from aliquot.hardware.kernel.vfio_binding import companions

    try:
        companions(connection.files, pci)
    except BlockedError as error:
        return error
    return None


def _members(connection: Connection, group: int | None) -> tuple[tuple[str, str], ...]:
    """Return the devices of an IOMMU group, each with its driver."""
    from aliquot.hardware.kernel import pci

    if group is None:
        return ()
    files = connection.files
    return tuple((m.pci, m.driver) for m in (pci.member(files, each) for each in pci.members(files, group)))


def _checked(
    inventory: Inventory,
    gpu: Gpu,
    function: VirtualFunction | None,
    members: tuple[tuple[str, str], ...],
    verdict: str,
) -> str:
    what = f"virtual function {function.number} of GPU {gpu.pci}" if function else mig_picture.product(gpu)
    group = function.iommu_group if function else _virtual(gpu).iommu_group
    holders = function.holders if function else gpu.holders
    lines = [f"{function.pci if function else gpu.pci}  {what}", f"  {_host(inventory)}"]
    lines.append(f"  IOMMU group {group}" if group is not None else "  no IOMMU group")
    lines += draw.table([("", pci, driver or "no driver") for pci, driver in members], "    ")
    lines.append(f"  {vgpu_views.state(holders)}")
    return "\n".join([*lines, f"verdict: {verdict}"])
