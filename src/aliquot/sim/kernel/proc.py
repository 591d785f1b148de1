"""The ``/proc`` and ``/dev`` of a simulated node, as far as GPUs and VMs need them."""

from __future__ import annotations

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.topology import nvswitches
from aliquot.sim.kernel import devices, functions, host_devices, nodes, usb, vms
from aliquot.sim.kernel.tree_entries import Dir, Entry, File, SymbolicLink, WritableFile, folder, line, text
from aliquot.sim.node import SimNode
from aliquot.sim.state import VmState

_KERNELS = {"mdev": "5.15.0-119-generic", "vfio": "6.14.0-24-generic", "": "6.8.0-60-generic"}
"""A typical kernel release for each kind of vGPU host driver."""


def host(node: SimNode) -> str:
    """Return the vGPU host driver of the node, if any GPU has it."""
    return next((g.state.host for g in node.gpus if g.state.host), "")


def has_mdev(node: SimNode) -> bool:
    """Return whether the mdev core is loaded."""
    return any(g.state.host == "mdev" for g in node.gpus)


def modules(node: SimNode) -> tuple[str, ...]:
    """Return the relevant loaded modules."""
    own: tuple[str, ...] = ("nvidia_vgpu_vfio",) if host(node) else ()
    own += ("mdev",) if has_mdev(node) else ()
    return ("nvidia", *own, "vfio_pci", "vfio_pci_core", "vfio_iommu_type1", "vfio", "igb")


def proc(node: SimNode) -> Dir:
    def make() -> dict[str, Entry]:
        release = _KERNELS[host(node)]
        found: dict[str, Entry] = {
            "modules": line(lambda: "\n".join(f"{m} 16384 0 - Live 0x0000000000000000" for m in modules(node))),
            "cmdline": text(
                f"BOOT_IMAGE=/vmlinuz-{release} ro{' intel_iommu=on iommu=pt' if node.state.iommu else ''}\n"
            ),
            "version": text(f"Linux version {release}\n"),
            "sys": folder(
                {
                    "kernel": folder(
                        {
                            "osrelease": text(f"{release}\n"),
                            "random": folder({"boot_id": line(lambda: node.state.boot_id)}),
                        }
                    )
                }
            ),
            "driver": folder({"nvidia": _nvidia(node)} | _nvswitch(node)),
        }
        found["swaps"] = host_devices.swaps(node)
        found["1"] = host_devices.init_process(node)
        for vm in node.state.vms:
            found[str(vm.pid)] = _process(node, vm)
        return found

    return Dir(make)


def _nvidia(node: SimNode) -> Dir:
    version = node.state.driver
    return folder(
        {
            "version": text(
                f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build\n"
                "GCC version:  gcc version 12\n"
            ),
            "gpus": Dir(lambda: {g.state.pci: _gpu(node, g) for g in node.visible}),
        }
    )


def _nvswitch(node: SimNode) -> dict[str, Entry]:
    """Return a directory for each NVSwitch, as in NVIDIA's driver."""
    found = nvswitches(node.gpus)
    each: dict[str, Entry] = {pci: folder({"information": text(f"BIOS Version: {pci}\n")}) for pci in found}
    return {"nvidia-nvswitch": folder({"devices": folder(each)})} if found else {}


def _gpu(node: SimNode, gpu: SimGpu) -> Dir:
    state = gpu.state
    rows = {
        "Model": state.product,
        "IRQ": "255",
        "GPU UUID": state.uuid,
        "Video BIOS": "??.??.??.??.??",
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": state.pci,
        "Device Minor": str(state.minor),
    }
    information = "".join(f"{name}:{' ' if len(name) > 6 else ' ' * 3}\t {value}\n" for name, value in rows.items())
    return folder(
        {
            "information": text(information),
            "unbindLock": File(
                lambda: f"{int(state.locked)}\n",
                WritableFile(state.index, lambda value: functions.lock(node, gpu, value)),
            ),
        }
    )


def _process(node: SimNode, vm: VmState) -> Dir:
    """Return a VM's QEMU process: name, command line, open files."""
    opened = ["/dev/null", "/dev/kvm", "/dev/vfio/vfio"]
    opened += dict.fromkeys(f"/dev/vfio/{number}" for d in vm.devices if (number := group_of(node, d)) is not None)
    return folder(
        {
            "comm": text("qemu-system-x86\n"),
            "cmdline": text(vms.command_line(vm)),
            "stat": text(f"{vm.pid} (qemu-system-x86) S 1 {vm.pid} {vm.pid} 0 -1 0\n"),
            "fd": folder({str(n): SymbolicLink(path) for n, path in enumerate(opened)}),
        }
    )


def group_of(node: SimNode, name: str) -> int | None:
    """Return the IOMMU group of a function (by address) or an mdev (by UUID)."""
    for gpu in node.gpus:
        for vgpu in gpu.state.vgpus:
            if vgpu.uuid == name:
                return vgpu.group
    for device in devices.all_functions(node):
        if device.address == name:
            return devices.group(node, device)
    return None


def dev(node: SimNode) -> Dir:
    def make() -> dict[str, Entry]:
        device = File(device=True)
        found: dict[str, Entry] = {"null": device, "kvm": device, "nvidiactl": device}
        found |= {f"nvidia{g.state.minor}": device for g in node.visible}
        groups: dict[str, Entry] = {"vfio": device}
        handles: dict[str, Entry] = {}
        for each in devices.all_functions(node):
            if nodes.has_handle(node, each):
                groups[str(devices.group(node, each))] = device
                handles[nodes.vfio_name(node, each)] = device
        for gpu in node.gpus:
            groups |= {str(v.group): device for v in gpu.state.vgpus if v.uuid}
        groups["devices"] = folder(handles)
        found["vfio"] = folder(groups)
        found["bus"] = folder({"usb": folder(usb.files(node))})
        return found

    return Dir(make)
