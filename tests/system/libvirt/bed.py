"""A real libvirtd with the real mdevctl on a simulated host: its /sys shows a simulated node.

Usage. The fixture ``bed`` creates a bed for the template of the test module::

    def test_something(bed: Bed) -> None:
        bed.enable("0000:08:00.0")                         # sriov-manage -e
        bed.virsh("nodedev-list", "--cap", "mdev_types")   # or libvirt.open(bed.uri), or Aliquot's Libvirt port
        bed.files.names("/sys/bus/mdev/devices")           # the same kernel, as Aliquot reads it

- ``bed.uri`` can be opened from anywhere: the socket is in a folder of the host.
- ``bed.run(...)`` runs any program with libvirtd's /sys (mdevctl, lspci, cat).
- ``bed.node`` is the simulated node (``reboot``, ``start_vm``, faults), ``bed.files`` the Files port for it.
- ``bed.root`` is where the node is mounted for all processes: ``RealFiles(bed.root)`` is the host's kernel.

Real are libvirtd, virsh, mdevctl, QEMU, the VFS and every read and write. Simulated are /sys and udevd. /sys is FUSE
over the node, with the host's own ``fs``, ``module``, ``devices/system`` and the like bound into it. ``uevents`` sends
the events that udevd would send. VFIO is missing: a VM with a host device can be defined and validated, but QEMU cannot
open the group at the start.

/etc/libvirt, /etc/mdevctl.d, /run and the rest are empty tmpfs inside, so nothing of the host is touched. At the end of
the bed its process namespace ends every process in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from aliquot.sim import lifecycle as control
from aliquot.sim import mount_process as mounting
from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles
from support.processes import until
from system.sim.mounted import missing as no_fuse

from . import daemon

_POINTS = ("fs", "module", "dev", "devices/system", "devices/virtual", "class/net", "class/block", "class/tty", "block")
"""Folders of the host's own /sys that libvirtd needs."""

_LASTING_S = 0.5
"""Cache time. libvirtd reads hundreds of files, each at the end of a long path, for every function of a GPU."""

_THEN = "mkdir -p /run/udev && : > /run/udev/control"
"""Without that file libudev assumes that no udevd sends events."""

_BEFORE = """
set -e
ip link set lo up
for each in $POINTS; do [ ! -d /sys/$each ] || mount --rbind /sys/$each "$ROOT/sys/$each"; done
mount --rbind "$ROOT/sys" /sys
mount -t tmpfs tmpfs /etc/mdevctl.d
mkdir -p /etc/mdevctl.d/scripts.d/callouts /etc/mdevctl.d/scripts.d/notifiers
export SYSTEMD_DEVICE_VERIFY_SYSFS=0
"$PYTHON" "$UEVENTS" "$STATE" "$NODE" > "$ROOT.uevents" 2>&1 &
while ! grep -q ready "$ROOT.uevents"; do sleep 0.05; done
"""


def missing() -> str:
    """Return why no bed can run here, or "" if one can."""
    if reason := daemon.missing() or no_fuse():
        return reason
    for program in ("mdevctl", "ip", "nsenter"):
        if shutil.which(program, path=daemon._path()) is None:
            return f"{program} is not installed"
    if not os.path.isdir("/etc/mdevctl.d"):
        return "there is no /etc/mdevctl.d"
    done = subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, text=True)
    return f"no network namespaces: {done.stderr.strip()}" if done.returncode else ""


@dataclass(frozen=True)
class Bed:
    """A libvirtd on a simulated node. ``pid`` is the pid of a process in its namespaces."""

    node: SimClient
    uri: str
    root: str
    pid: int

    @property
    def files(self) -> SimFiles:
        return SimFiles(self.node)

    def run(self, *words: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a program in libvirtd's namespaces, with ``text`` as its input."""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-n", "--", *words]
        done = subprocess.run(inside, input=text, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def virsh(self, *words: str, check: bool = True) -> str:
        """Run virsh and return its stdout and stderr."""
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def enable(self, gpu: str) -> None:
        """Enable the virtual functions of a GPU and wait until libvirtd has seen the last one."""
        answer = self.node.sriov_manage("-e", gpu)
        assert answer["rc"] == 0, answer
        links = [n for n in self.files.names(f"/sys/bus/pci/devices/{gpu}") if n.startswith("virtfn")]
        last = max(links, key=lambda n: int(n.removeprefix("virtfn")))
        address = os.path.basename(self.files.real(f"/sys/bus/pci/devices/{gpu}/{last}"))
        device = "pci_" + address.replace(":", "_").replace(".", "_")
        self.until(lambda: device in self.virsh("nodedev-list", "--cap", "pci").split())

    def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait for something that libvirtd learns from events. Raises AssertionError after ``seconds``."""
        until(true, lambda: self.virsh("nodedev-list"), seconds, pause_s=0.3)


@contextmanager
def made(template: str, cache: Path) -> Iterator[Bed]:
    """Create a bed on a new simulated node (``a2:mdev``, ``l40s:vfio*2``). ``cache`` keeps what libvirtd learns about
    QEMU.
    """
    home = Path(tempfile.mkdtemp(prefix="aliquot-bed-"))
    state, root = str(home / "state"), home / "node"
    root.mkdir()
    try:
        name = control.start(state, template, "bed")
        inside = [f"/sys/{p}" for p in (*_POINTS, *_kernel())]
        mounting.mount(state, name, str(root), inside, _LASTING_S)
        environment = {
            "POINTS": " ".join((*_POINTS, *_kernel())),
            "ROOT": str(root),
            "STATE": state,
            "NODE": name,
            "THEN": _THEN,
            "PYTHON": sys.executable,
            "UEVENTS": str(Path(__file__).with_name("uevents.py")),
        }
        with daemon.running(cache, _BEFORE, ("-n",), **environment) as uri:
            yield Bed(SimClient(state, name), uri, str(root), _pid(root))
    finally:
        control.stop(state)
        _unmounted(root)
        shutil.rmtree(home, ignore_errors=True)


def _kernel() -> list[str]:
    """Return the folders of /sys/kernel except those of the node."""
    return [f"kernel/{n}" for n in sorted(os.listdir("/sys/kernel")) if n != "iommu_groups" and _is_dir(n)]


def _is_dir(name: str) -> bool:
    return os.path.isdir(f"/sys/kernel/{name}")


def _pid(root: Path) -> int:
    """Return the daemon's pid on the host. The pid in its own file is that of its namespace."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                program = os.readlink(f"/proc/{entry}/exe")
            except OSError:
                continue  # it ended, or may not be read
            if f"ROOT={root}".encode() in environment and os.path.basename(program) == "libvirtd":
                return int(entry)
    raise RuntimeError("libvirtd is not there")


def _unmounted(root: Path) -> None:
    """Wait for the end of the mount, which ends when its node is stopped."""
    deadline = time.monotonic() + 10
    while mounting.mounted(str(root)) is not None and time.monotonic() < deadline:
        time.sleep(0.3)
