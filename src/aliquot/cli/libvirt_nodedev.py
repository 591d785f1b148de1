"""``aliquot libvirt nodedev``: mdevs that libvirt brings back after a reboot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.cli import draw, node, output, streams
from aliquot.cli.libvirt import opened
from aliquot.cli.parse import Args

if TYPE_CHECKING:
    from aliquot.integrations.libvirt.nodedev import Mdev
    from aliquot.integrations.libvirt.port import Libvirt
    from aliquot.model.inventory import Inventory


def run(args: Args) -> int:
    from aliquot.integrations.libvirt import nodedev

    acts: dict[str, Callable[[Libvirt, Mdev, nodedev.Say], object]] = {
        "define": nodedev.define,
        "start": nodedev.start,
        "autostart": nodedev.autostart,
        "undefine": nodedev.undefine,
    }
    with opened(args) as libvirt:
        inventory = node.inventory(args)
        if args.verb != "list":
            for mdev in nodedev.chosen(inventory, libvirt.mdevs(), args.mdevs):
                acts[args.verb](libvirt, mdev, streams.note)
        return _show(args, inventory, nodedev.mdevs(inventory, libvirt.mdevs()))


def _show(args: Args, inventory: Inventory, mdevs: tuple[Mdev, ...]) -> int:
    rows = [(m.uuid, m.type_name, m.function, m.state, "" if m.there else "a reboot took it") for m in mdevs]
    text = "\n".join(draw.table([("mdev", "type", "function", "libvirt", ""), *rows], ""))
    document = output.made("LibvirtMdevs", node=inventory.node, mdevs=mdevs)
    output.emit(document, args.output, text if mdevs else f"{inventory.node} has no mdev that libvirt could keep")
    return 0
