"""The VMs of a simulated node: each is a process with open VFIO handles."""

from __future__ import annotations

from aliquot.sim.node import SimNode
from aliquot.sim.state import VmState


def open_on(node: SimNode, device: str) -> VmState | None:
    """Return the VM that has a function (by address) or an mdev (by UUID) open."""
    return next((vm for vm in node.state.vms if device in vm.devices), None)


def command_line(vm: VmState) -> str:
    """Return QEMU's command line as libvirt starts it; each word ends with a zero byte."""
    words = (
        "/usr/bin/qemu-system-x86_64",
        "-name",
        f"guest={vm.name},debug-threads=on",
        "-machine",
        "q35",
        "-nographic",
    )
    return "".join(f"{word}\0" for word in words)
