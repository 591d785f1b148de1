"""Machine of a test: a mount namespace with its own ``/dev`` and the programs of a release of Slurm.

Debian 13's programs run in a separate root. It shares ``/tmp`` and ``/dev``, and ``bin`` holds programs of the usual
names that enter it. Nothing outside is touched except control groups (see ``cgroups``), and ``close`` ends every
process that was started, whatever it has become.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from support import forkserver, processes

from .cgroups import Cgroups
from .release import ACCOUNTING, PROGRAMS, Release

TIMEOUT_S = 60.0
_MACHINE = """
set -e
mount --make-rprivate /
mkdir -p "$DEV"
mount -t tmpfs -o mode=755 none "$DEV"
for each in null zero full random urandom tty; do cp -a /dev/$each "$DEV/$each"; done
mkdir "$DEV/pts" "$DEV/shm"
mount --bind /dev/pts "$DEV/pts"
mount -t tmpfs none "$DEV/shm"
ln -s /proc/self/fd "$DEV/fd"; ln -s pts/ptmx "$DEV/ptmx"
ln -s /proc/self/fd/0 "$DEV/stdin"; ln -s /proc/self/fd/1 "$DEV/stdout"; ln -s /proc/self/fd/2 "$DEV/stderr"
if [ "$ROOT" != / ]; then
  mount -t proc proc "$ROOT/proc"
  mount --rbind /sys "$ROOT/sys"
  mount --rbind /tmp "$ROOT/tmp"
  mount --rbind "$DEV" "$ROOT/dev"
  mount --bind /etc/hosts "$ROOT/etc/hosts"
fi
mount --rbind "$DEV" /dev
trap '' HUP INT TERM
echo ready
read -r _ || true
set +e
for round in 1 2 3; do
  for each in /proc/[0-9]*; do
    pid=${each#/proc/}
    [ "$pid" = $$ ] || [ ! "$each/ns/mnt" -ef /proc/$$/ns/mnt ] || kill -KILL "$pid"
  done
done
[ -d /sys/fs/cgroup/devices/"$NAME" ] || umount -l /sys/fs/cgroup
for round in 1 2 3 4 5 6 7 8 9; do
  set -- /sys/fs/cgroup/*/"$NAME"
  [ ! -d "$1" ] || { find "$@" -depth -type d -exec rmdir {} +; sleep 0.2; }
done
"""
"""The machine waits for the end of its test run. If that died without ``close``, the machine ends its processes itself.

Both use only shell built-ins. ``close`` kills programs, and once a killed ``readlink`` made all processes look alike.
"""


class Ran(NamedTuple):
    """Result of a program."""

    code: int
    out: str
    err: str


class Machine:
    """A machine. ``folder`` must be below /tmp. Call ``close`` at the end."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release = release
        self.folder = folder
        self.etc = folder / "etc"
        self.bin = folder / "bin"
        self.logs = folder / "log"
        self.ports = Ports()
        for each in (self.etc, self.bin, self.logs):
            each.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.host = socket.gethostname().partition(".")[0]
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._closed = False
        self._programs()
        self._machine = self._enter()
        self._namespace = os.readlink(f"/proc/{self._machine.pid}/ns/mnt")
        self._outside()
        self.cgroups = Cgroups(folder.name, release.root, lambda script: self.ok("sh", "-ec", script))

    def _enter(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "DEV": str(self.folder / "dev"), "ROOT": self.release.root, "NAME": self.folder.name}
        words = ["unshare", "--mount", "sh", "-c", _MACHINE]
        with open(self.logs / "machine.log", "wb") as log:
            machine = subprocess.Popen(
                words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert machine.stdout
        assert machine.stdout.readline() == b"ready\n", f"the machine did not start: {self.log('machine')}"
        return machine

    def _programs(self) -> None:
        """Link the release's programs under their usual names, whatever root they are in. Inside that root (a job)
        their own names work.
        """
        root = self.release.root
        client = (
            compiled("program.c", f'-DROOT="{root}"', "-D_GNU_SOURCE", "-static") if self.release.chrooted else None
        )
        for name in (*PROGRAMS, *ACCOUNTING):
            (self.bin / name).symlink_to(client or shutil.which(name, path=self.release.path) or name)

    def _outside(self) -> None:
        """Write ``outside PROGRAM ...`` and ``aliquot``, which run this host's programs for jobs in Debian 13's root.
        They stay in the job's control groups.
        """
        way = f"exec chroot /proc/{self._machine.pid}/root " if self.release.chrooted else "exec "
        for name, words in (("outside", ""), ("aliquot", f"{forkserver.python()} -m aliquot ")):
            (self.bin / name).write_text(f'#!/bin/sh\n{way}{words}"$@"\n')
            (self.bin / name).chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """Environment of programs inside."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "ALIQUOT_SIM"))}
        path = f"{self.bin}:{os.environ['PATH']}"
        return kept | {"SLURM_CONF": str(self.etc / "slurm.conf"), "PATH": path}

    def inside(self, *words: str) -> list[str]:
        """Return the command line that runs a program inside the machine."""
        return forkserver.inside(self._machine.pid, *words)

    def run(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S, stdin: str = ""
    ) -> Ran:
        """Run a program inside the machine to its end."""
        environment = self.env | dict(env or {})
        done = forkserver.run(
            words,
            mounts_of=self._machine.pid,
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            input=stdin,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, timeout: float = TIMEOUT_S) -> str:
        """Run a program that must succeed and return its stdout."""
        done = self.run(*words, timeout=timeout)
        assert done.code == 0, (words, done)
        return done.out

    def aliquot(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S, stdin: str = ""
    ) -> Ran:
        """Run the ``aliquot`` command inside the machine."""
        return self.run(sys.executable, "-m", "aliquot", *words, env=env, timeout=timeout, stdin=stdin)

    def start(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a daemon inside the machine; ``close`` or ``stop`` ends it. Its output goes to ``logs/NAME.log``."""
        with open(self.logs / f"{name}.log", "ab") as log:
            daemon = forkserver.Popen(
                words,
                mounts_of=self._machine.pid,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env | dict(env or {}),
                start_new_session=True,
            )
        self.daemons[name] = daemon
        return daemon

    def stop(self, name: str, sign: int = signal.SIGTERM) -> None:
        """Stop a daemon and wait for its end. The processes that it started (jobs) go on."""
        daemon = self.daemons.pop(name)
        with contextlib.suppress(ProcessLookupError):
            daemon.send_signal(sign)
        try:
            daemon.wait(15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def log(self, name: str) -> str:
        """Return the output of a daemon."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def inhabitants(self) -> list[int]:
        """Return every process in the machine's namespace: steps, jobs, daemons that re-executed themselves."""
        found = []
        for pid in (int(each) for each in os.listdir("/proc") if each.isdigit()):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/mnt") == self._namespace and pid != self._machine.pid:
                    found.append(pid)
        return found

    def close(self) -> None:
        """Kill everything at once, including jobs. A slurmd that is stopped would wait for slurmctld's answer on each
        job.
        """
        if self._closed:
            return
        self._closed = True

        def empty() -> bool:
            rest = self.inhabitants()
            for pid in rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The kernel ends a killed daemon in steps: it leaves the machine before its parent can wait for it.
            return all(daemon.poll() is not None for daemon in self.daemons.values()) and not rest

        try:
            until(empty, "something in the machine does not end")
            self.cgroups.remove()
        finally:
            self._machine.kill()
            self._machine.communicate()


@functools.cache
def compiled(source: str, *options: str) -> Path:
    """Build a program from a C file of this folder once per process. Raises CalledProcessError."""
    result = Path(_folder().name) / f"{len(os.listdir(_folder().name))}-{Path(source).stem}"
    words = ["cc", "-O1", "-o", str(result), str(Path(__file__).with_name(source)), *options]
    subprocess.run(words, check=True, timeout=TIMEOUT_S)
    return result


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="aliquot-slurm-programs-", dir="/tmp", ignore_cleanup_errors=True)


class Ports:
    """Free TCP ports by name, always the same for a name. Never a port that the kernel assigns to clients."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = next(port for port in iter(lambda: random.randrange(10_000, 30_000), 0) if _free(port))
        return self._known[name]


def until(true: Callable[[], bool], what: str | Callable[[], str], seconds: float = 30.0) -> None:
    """Wait until a condition holds. ``what`` describes the failure; a callable is called only at the timeout."""
    processes.until(true, what, seconds, pause_s=0.1)  # each call to Slurm costs 5 ms of a core


def _free(port: int) -> bool:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            connection.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
