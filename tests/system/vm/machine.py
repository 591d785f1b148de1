"""The emulated machine: its devices, and one run of it from the guest's first output to its last."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from aliquot.sim import shim_build as library
from system.vm import initramfs
from system.vm.kernel import Kernel

HERE = Path(__file__).resolve().parent
BOOT = 120.0
"""Seconds until the guest's first output."""
WHOLE = 480.0
"""Seconds for the whole run."""

KERNEL_LINE = (
    "console=ttyS0 loglevel=5 panic=-1 intel_iommu=on iommu=pt mitigations=off nokaslr audit=0 tsc=reliable "
    "no_timer_check aliquot.guest=1"
)
"""Options that make the kernel accept its timers as they are: those of a machine without a CPU for a while look broken.
"""
DEVICES = (
    "intel-iommu,intremap=on,aw-bits=48",
    # 0000:01:00.0: an SR-IOV function with 16 VFs, presented as an A2
    "pcie-root-port,id=rp0,chassis=1,addr=10.0",
    "nvme-subsys,id=s0",
    "nvme,serial=a2,subsys=s0,bus=rp0,sriov_max_vfs=16,sriov_vq_flexible=32,sriov_vi_flexible=16,"
    "max_ioqpairs=34,msix_qsize=17",
    # 0000:02:00.0: alone in its IOMMU group, presented as a T4
    "pcie-root-port,id=rp1,chassis=2,addr=11.0",
    "edu,bus=rp1",
    # 0000:03:00.0: another SR-IOV function, left to the kernel's own nvme driver
    "pcie-root-port,id=rp2,chassis=3,addr=12.0",
    "nvme-subsys,id=s1",
    "nvme,serial=plain,subsys=s1,bus=rp2,sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=4,"
    "max_ioqpairs=12,msix_qsize=13",
    # 0000:05:01.0 and 02.0: behind one conventional bridge, so in one group; the first is presented as a T4
    "pcie-root-port,id=rp3,chassis=4,addr=13.0",
    "pcie-pci-bridge,id=old,bus=rp3",
    "edu,bus=old,addr=1.0",
    "virtio-rng-pci,bus=old,addr=2.0",
)

Event = dict[str, Any]


class SilentError(Exception):
    """The machine started and the guest never came up, which is an error and not a missing requirement."""


def command(kernel: Kernel, archive: Path, console: Path) -> list[str]:
    """Return the command line, with software emulation everywhere: /dev/kvm may exist and not run a Debian kernel. It
    has one CPU: with two, emulation must make every atomic instruction atomic here as well, and takes half as long
    again.
    """
    words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += ["-accel", "tcg", "-machine", "q35,kernel-irqchip=split", "-cpu", "max"]
    words += ["-m", "2560", "-kernel", str(kernel.image), "-initrd", str(archive)]
    words += ["-append", KERNEL_LINE]
    words += ["-serial", f"file:{console}", "-serial", "stdio"]
    words += ["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]
    for device in (*DEVICES, "virtio-9p-pci,fsdev=host,mount_tag=host,addr=3.0"):
        words += ["-device", device]
    return words


PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "libvirtd": "libvirt-daemon-system",
    "virtlogd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "mdevctl": "mdevctl",
    "udevadm": "udev",
}
"""Programs used on the machine or, through its files, in the guest, with the packages that contain them."""


def missing() -> str:
    """Return why the guest cannot be started here, or ""."""
    absent = {package for program, package in PROGRAMS.items() if not which(program)}
    return f"the guest needs: apt-get install {' '.join(sorted(absent))}" if absent else ""


def which(program: str) -> str | None:
    """Find a program, also in the directories of root's PATH."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


def busybox() -> str:
    return which("busybox") or "busybox"


def run(kernel: Kernel, scratch: Path, hear: Callable[[Event], None]) -> None:
    """Boot, pass on the guest's output and end the machine. Raises SilentError if the guest never came up."""
    plan = {"python": sys.executable, "tests": str(HERE.parents[1]), "modules": str(kernel.modules)}
    plan |= {"release": kernel.release, "module": str(kernel.module), "libraries": _libraries(scratch)}
    archive, console = scratch / "initramfs", scratch / "console"
    archive.write_bytes(initramfs.build(Path(busybox()), kernel.modules, HERE / "init.sh", json.dumps(plan)))
    began = time.monotonic()
    for _ in range(2):  # try again if the machine was so loaded that the kernel stopped over its clocks
        heard = 0
        for event in _events(command(kernel, archive, console)):
            hear(event | {"at": round(time.monotonic() - began, 1)})
            heard += 1
        if heard:
            return
    raise SilentError(f"the guest said nothing; its console ends with:\n{tail(console)}")


def _libraries(scratch: Path) -> str:
    """Return where the simulator's library is kept, compiled here: in the guest that would take a minute."""
    (scratch / "node").mkdir()
    place = os.environ.setdefault("ALIQUOT_CACHE_DIR", str(scratch))
    library.provide(str(scratch), "node")
    return place


def _events(words: list[str]) -> Iterator[Event]:
    """Yield one event per line of the guest. End the machine if it is silent too long."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as qemu:
        assert qemu.stdout is not None
        whole, boot = threading.Timer(WHOLE, qemu.kill), threading.Timer(BOOT, qemu.kill)
        whole.start()
        boot.start()
        try:
            for line in qemu.stdout:
                boot.cancel()
                if line.startswith("{"):
                    yield json.loads(line)
        finally:
            whole.cancel()
            boot.cancel()
            qemu.kill()


def tail(console: Path, lines: int = 30) -> str:
    """Return the last lines of a console."""
    if not console.exists():
        return ""
    return "\n".join(console.read_text(errors="replace").splitlines()[-lines:])
