"""A separate real libvirtd in a mount and a process namespace, without the host's configuration, state or VMs.

When it is stopped, everything that it started ends, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_INSIDE = """
set -e
for each in /etc/libvirt /var/lib/libvirt /var/log /run; do mount -t tmpfs tmpfs $each; done
mkdir -p /run/lock /run/libvirt /var/log/libvirt/qemu /var/cache/libvirt/qemu
mount --bind "$CACHE" /var/cache/libvirt/qemu
cat > /etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
dynamic_ownership = 0
END
cat > /etc/libvirt/libvirtd.conf <<END
unix_sock_dir = "$SOCKETS"
auth_unix_rw = "none"
auth_unix_ro = "none"
END
eval "$THEN"
# The shell stays as init of the namespace: QEMU detaches itself, and libvirtd waits until init reaps the dead process.
libvirtd --config /etc/libvirt/libvirtd.conf &
wait
"""
_MASKED = ("/etc/libvirt", "/var/lib/libvirt", "/var/log", "/var/cache/libvirt", "/run")


def missing() -> str:
    """Return why no libvirtd can be started here, or "" if one can."""
    for program in ("libvirtd", "virsh", "unshare", "qemu-system-x86_64"):
        if shutil.which(program) is None and not os.path.exists(f"/usr/sbin/{program}"):
            return f"{program} is not installed"
    if os.geteuid() != 0:
        return "libvirtd's namespaces need root"
    absent = [each for each in _MASKED if not os.path.isdir(each)]
    if absent:
        return f"there is no {absent[0]}"
    done = subprocess.run(["unshare", "-m", "-p", "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces and control groups: {done.stderr.strip()}" if done.returncode else ""


@contextmanager
def running(cache: Path, before: str = "", flags: tuple[str, ...] = (), **environment: str) -> Iterator[str]:
    """Yield the URI of a daemon. ``cache`` keeps what it learns about QEMU (10 s of probing, more on a busy host).

    ``before`` is shell code that runs first in the daemon's namespaces, with ``environment``. The code in the variable
    THEN runs last. ``flags`` are the options of unshare for more namespaces.
    """
    cache.mkdir(parents=True, exist_ok=True)
    # A socket path has at most 107 characters, which pytest's own folders use up.
    sockets = Path(tempfile.mkdtemp(prefix="aliquot-lv-"))
    command = ["unshare", "-m", "-p", *flags, "--fork", "--kill-child", "--mount-proc", "sh", "-c", before + _INSIDE]
    with open(sockets / "log", "w") as log:
        daemon = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "CACHE": str(cache),
                "SOCKETS": str(sockets),
                "PATH": _path(),
                "THEN": "",
                **environment,
            },
        )
    try:
        uri = f"qemu+unix:///system?socket={sockets}/libvirt-sock"
        _wait(daemon, uri, sockets / "log")
        yield uri
    finally:
        daemon.kill()  # unshare ignores SIGTERM; its death ends the namespace
        daemon.wait()
        shutil.rmtree(sockets, ignore_errors=True)


def _path() -> str:
    """Return PATH with sbin, where libvirtd is. Not every user's PATH has it."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _wait(daemon: subprocess.Popen[bytes], uri: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            break
        if subprocess.run(["virsh", "-c", uri, "list"], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"libvirtd did not come up:\n{log.read_text()}")
