"""The guest machine has what the other checks assume: modules, cards, IOMMU groups."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aliquot.hardware.kernel_files import RealFiles
from system.vm.inside.checks import check

FILES = RealFiles()
A2, T4, GROUPED, PLAIN = "0000:01:00.0", "0000:02:00.0", "0000:05:01.0", "0000:03:00.0"
"""An SR-IOV GPU, one without, one that shares its IOMMU group with another device, and an SR-IOV device with the
kernel's own driver (nvme).
"""
UNRELATED = "0000:05:02.0"
PLAN = json.loads(Path("/run/plan.json").read_text()) if Path("/run/plan.json").exists() else {}


def device(pci: str, name: str = "") -> str:
    return f"/sys/bus/pci/devices/{pci}/{name}".rstrip("/")


def driver(pci: str) -> str:
    """Return the bound driver, read directly from sysfs."""
    path = device(pci, "driver")
    return os.path.basename(os.readlink(path)) if os.path.islink(path) else ""


def sh(*command: str, patience: float = 60) -> str:
    """Return the output of a program. Raises AssertionError with its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
    return done.stdout


def stand_in(framework: str) -> None:
    """Load the stand-in for the vGPU host driver, with its virtual functions in this vGPU framework."""
    gpus = (f"{A2}=a2-{framework}", f"{T4}=t4-mdev", f"{GROUPED}=t4-mdev")
    sh("insmod", PLAN["module"], f"cards={','.join(gpus)}")


@contextmanager
def qemu(name: str, device: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a VM with a VFIO device (``host=ADDRESS``, ``sysfsdev=PATH``), without libvirt. It stays in its firmware."""
    words = ["qemu-system-x86_64", "-name", f"guest={name}", "-nodefaults", "-display", "none", "-m", "64"]
    words += ["-accel", "tcg", "-machine", "q35", "-device", f"vfio-pci,{device}"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as machine:
        try:
            yield machine
        finally:
            machine.kill()


@check()
def modules_load() -> str:
    home = Path("/lib/modules") / PLAN["release"]
    home.mkdir(parents=True, exist_ok=True)
    sh("mount", "--bind", PLAN["modules"], str(home))
    sh("modprobe", "-a", "vfio-pci", "mdev", "vfio_iommu_type1")
    stand_in("mdev")
    sh("modprobe", "nvme")
    return os.uname().release


@check()
def cards_wear_their_ids() -> None:
    """Check that the emulated devices present the ids of their GPUs in sysfs."""
    for pci, ids in ((A2, ("0x10de", "0x25b6", "0x030200")), (T4, ("0x10de", "0x1eb8", "0x030200"))):
        assert tuple(FILES.read(device(pci, each)) for each in ("vendor", "device", "class")) == ids
        assert driver(pci) == "nvidia"
    assert driver(PLAIN) == "nvme"
    assert FILES.read(device(A2, "sriov_totalvfs")) == "16"


@check()
def the_iommu_is_on() -> None:
    alone = {os.path.realpath(device(pci, "iommu_group")) for pci in (A2, T4, GROUPED, PLAIN)}
    assert len(alone) == 4
    assert os.path.realpath(device(GROUPED, "iommu_group")) == os.path.realpath(device(UNRELATED, "iommu_group"))
