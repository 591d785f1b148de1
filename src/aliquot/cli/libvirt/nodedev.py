"""``aliquot libvirt nodedev``: mdevs that libvirt brings back after a reboot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.cli.framework import output, streams
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.libvirt.commands import opened
from aliquot.foundation.callbacks import Report

if TYPE_CHECKING:
    from aliquot.core.model.inventory import Inventory
    from aliquot.libvirt.nodedev import LibvirtMdev
    from aliquot.libvirt.port import Libvirt


def run(args: Args) -> int:
    from aliquot.libvirt import nodedev

    verbs: dict[str, Callable[[Libvirt, LibvirtMdev, Report], object]] = {
        "define": nodedev.define,
        "start": nodedev.start,
        "autostart": nodedev.autostart,
        "undefine": nodedev.undefine,
    }
    with opened(args) as libvirt:
        inventory = node.inventory(args)
        if args.verb != "list":
            for mdev in nodedev.select_mdevs(inventory, libvirt.mdevs(), args.mdevs):
                verbs[args.verb](libvirt, mdev, streams.note)
        return _show(args, inventory, nodedev.mdevs(inventory, libvirt.mdevs()))


def _show(args: Args, inventory: Inventory, mdevs: tuple[LibvirtMdev, ...]) -> int:
    rows = [(m.uuid, m.type_name, m.function, m.state, "" if m.exists else "a reboot took it") for m in mdevs]
    text = "\n".join(draw.table([("mdev", "type", "function", "libvirt", ""), *rows], ""))
    document = output.build("LibvirtMdevs", node=inventory.node, mdevs=mdevs)
    output.emit(document, args.output, text if mdevs else f"{inventory.node} has no mdev that libvirt could keep")
    return 0
