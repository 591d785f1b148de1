"""Virtual machines of a simulated node: a process each, with the VFIO handles that it has open."""

from __future__ import annotations

from aliquot.sim.node import SimNode
from aliquot.sim.state import VmState


def open_on(node: SimNode, device: str) -> VmState | None:
    """The virtual machine that has a function (by address) or an mdev (by UUID) open."""
    return next((vm for vm in node.state.vms if device in vm.devices), None)


def command_line(vm: VmState) -> str:
    """As libvirt starts QEMU; words end with a zero byte."""
    words = (
        "/usr/bin/qemu-system-x86_64",
        "-name",
        f"guest={vm.name},debug-threads=on",
        "-machine",
        "q35",
        "-nographic",
    )
    return "".join(f"{word}\0" for word in words)
