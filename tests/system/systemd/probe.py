"""Replacement for Aliquot in the tests of shipped units. Prints what the unit's restrictions permit, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEVICE = "/dev/aliquot-probe"
CAPABILITIES = {"SYS_MODULE": 16, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "MKNOD": 27, "KILL": 5, "SYS_BOOT": 22, "BPF": 39}


def writable(path: str) -> bool:
    return os.path.isdir(path) and not os.statvfs(path).f_flag & os.ST_RDONLY


def mknod() -> None:
    """Create a device node (that of /dev/null) and open it."""
    try:
        os.mknod(DEVICE, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.close(os.open(DEVICE, os.O_RDWR))
    finally:
        Path(DEVICE).unlink(missing_ok=True)


def other_user() -> None:
    """Read the environment of another user's process."""
    for process in Path("/proc").glob("[0-9]*"):
        if process.stat().st_uid and b"PROBE=1" in (process / "environ").read_bytes():
            return
    raise PermissionError("no process of another user is visible")


def restart() -> None:
    """Stop and start a service through D-Bus, as an apply does with the host's GPU services."""
    from aliquot.hardware.systemd.services import Services
    from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit

    asyncio.run(Services("/").stop(["other.service"], lambda _: None))
    notes = asyncio.run(Services("/").start(StoppedServices((StoppedUnit("other.service"),))))
    assert not notes, notes


def work() -> None:
    """Partition a simulated GPU. Starts processes and the simulator's server."""
    os.environ |= {"ALIQUOT_STATE_DIR": "/tmp/state", "ALIQUOT_SIM": "probe"}
    for words in (
        ["sim", "start", "a100-sxm4-40gb", "--name", "probe"],
        ["apply", "--gpu", "0", "--mig", "3g.20gb*2"],
        ["sim", "stop", "probe"],
    ):
        subprocess.run([sys.executable, "-m", "aliquot", *words], check=True, capture_output=True, text=True)


def outcome(act: Callable[[], Any]) -> str:
    """Return ``""`` if the act succeeds, else the error."""
    try:
        act()
    except subprocess.CalledProcessError as failure:
        return str(failure.stderr)[-500:]
    except Exception as failure:  # noqa: BLE001
        return f"{type(failure).__name__}: {failure}"
    return ""


def main() -> None:
    effective = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16)
    folders = ("/", "/usr", "/etc", "/var", "/sys", "/sys/fs/cgroup", "/proc/sys")
    actions: dict[str, Callable[[], Any]] = {"mknod": mknod, "other-user": other_user, "restart": restart, "work": work}
    actions["internet"] = lambda: socket.socket(socket.AF_INET).close()
    actions["state"] = lambda: Path("/var/lib/aliquot/probe").write_text("")
    actions["lock"] = lambda: Path("/run/aliquot/probe").write_text("")
    found = {
        "argv": sys.argv[1:],
        "capabilities": sorted(name for name, bit in CAPABILITIES.items() if effective >> bit & 1),
        "writable": [path for path in folders if writable(path)],
        "homes": "hidden" if not os.access("/root", os.R_OK) or not os.listdir("/root") else "visible",
        "refused": {name: why for name, act in actions.items() if (why := outcome(act))},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
