"""``aliquot passthrough``: whole GPUs and virtual functions for one virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aliquot.cli.commands import single_gpu as sharing
from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import plan_view as planview
from aliquot.cli.framework.views import vgpu_view as vgpuview
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Inventory, VirtualFunction
from aliquot.core.rendering import mig_picture
from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

VFIO = "vfio-pci"


def run(args: Args) -> int:
    return {"list": _list, "check": _check, "enable": _change, "disable": _change}[args.verb](args)


def _change(args: Args) -> int:
    return sharing.change(args, args.device, lambda inventory: _desired(inventory, args.device, args.verb == "enable"))


def _desired(inventory: Inventory, word: str, on: bool) -> DesiredGpu:
    """The wish for one device: the whole GPU, or one function beside those that are handed out already."""
    gpu, function = device(inventory, word)
    if function is None:
        return DesiredGpu(gpu.pci, mig=None, instances=None, passthrough=on)
    bound = {f.pci for f in _virtual(gpu).functions if f.driver == VFIO}
    bound = bound | {function.pci} if on else bound - {function.pci}
    return DesiredGpu(gpu.pci, mig=None, instances=None, vfio_bound=tuple(sorted(bound)))


def device(inventory: Inventory, word: str) -> tuple[Gpu, VirtualFunction | None]:
    """The GPU that a word names, or one of its virtual functions. Raises BlockedError, UsageError."""
    wanted = word.lower()
    for gpu in inventory.gpus:
        virtual = _virtual(gpu)
        for function in virtual.functions:
            if wanted in (function.pci, function.pci.partition(":")[2]):
                return gpu, function
        if any(wanted in (pci, pci.partition(":")[2]) for pci in virtual.addresses):
            raise BlockedError(
                f"{word} is a virtual function of GPU {gpu.pci}, and those are off now",
                next_step=f"aliquot vgpu enable {gpu.pci}",
            )
    return node.gpu(inventory, word), None


def _virtual(gpu: Gpu) -> GpuVirtualization:
    return gpu.virtual or GpuVirtualization()


def _list(args: Args) -> int:
    inventory = node.inventory(args)
    rows = [row for gpu in inventory.gpus for row in _rows(gpu)]
    document = output.build(
        "PassthroughDevices",
        node=inventory.node,
        host=inventory.host,
        gpus=[_plain(g) for g in inventory.gpus],
    )
    text = "\n".join([_host(inventory), "", *draw.table([("device", "what", "driver", "group", ""), *rows])])
    output.emit(document, args.output, text if inventory.gpus else f"{inventory.node} has no GPU")
    return 0


def _host(inventory: Inventory) -> str:
    host = inventory.host
    if host is None:
        return f"{inventory.node}   what the kernel has for virtual machines was not asked"
    words = [f"IOMMU {'on' if host.iommu else 'off'}", f"VFIO modules {'loaded' if host.vfio else 'not loaded'}"]
    return "   ".join([inventory.node, *words])


def _rows(gpu: Gpu) -> list[tuple[str, ...]]:
    virtual = _virtual(gpu)
    who = vgpuview.state((*gpu.holders,))
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
            state = vgpuview.state(function.holders)
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
        gpu, function = device(inventory, args.device)
        pci = function.pci if function else gpu.pci
        already = (function.driver if function else _virtual(gpu).driver) == VFIO
        members = _members(connection, function.iommu_group if function else _virtual(gpu).iommu_group)
        refusal = None if already else _refusal(connection, pci)
    made = plan(inventory, Desired((_desired(inventory, args.device, True),), name="passthrough check"))
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
    verdict = "it is handed out already" if already else "it can be handed out" if possible else "not possible now"
    if made.notes and not already and possible:
        verdict += ", with what the note says"
    output.emit(document, args.output, _checked(inventory, gpu, function, members, verdict))
    if args.output == "text":
        for note in made.notes:
            streams.note(f"note: {note}")
    if made.blocked and args.output == "text":
        streams.note(planview.blockers(made, args.typed_node))
    elif refusal is not None:
        raise refusal
    return 20 if made.blocked else 0


def _refusal(connection: Connection, pci: str) -> BlockedError | None:
    """What the kernel has against it: no IOMMU, or foreign devices in the same group."""
    from aliquot.hardware.kernel.vfio_binding import companions

    try:
        companions(connection.files, pci)
    except BlockedError as error:
        return error
    return None


def _members(connection: Connection, group: int | None) -> tuple[tuple[str, str], ...]:
    """Every device of an IOMMU group with its driver."""
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
    lines = [f"{function.pci if function else gpu.pci}  {what}", f"  {_host(inventory).partition('   ')[2]}"]
    lines.append(f"  IOMMU group {group}" if group is not None else "  no IOMMU group")
    lines += draw.table([("", pci, driver or "no driver") for pci, driver in members], "    ")
    lines.append(f"  {vgpuview.state(holders)}")
    return "\n".join([*lines, f"verdict: {verdict}"])
