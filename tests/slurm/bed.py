"""A real Slurm cluster on one machine: munged, slurmctld, and slurmds over device nodes of simulated GPUs.

How to use it::

    def test_something(bed: Bed) -> None:             # runs once per release: 22.05 and 24.11
        bed.gpu_devices(0, 66, 67)                    # /dev/nvidia0, /dev/nvidia-caps/nvidia-cap66 and 67
        bed.conf(bed.node("n1", "CPUs=2 Gres=gpu:1") + "\nPartitionName=all Nodes=ALL Default=YES", gres="...")
        bed.controller()
        bed.slurmd("n1")                              # or bed.start("n1", "slurmd", "-D", "-Z", "-N", "n1", ...)
        bed.run("sinfo", "-N")                        # a program of that release, inside the machine
        bed.aliquot("slurm", "render", "--node", "n1")

Daemons and clients run in one mount namespace, "the machine", whose ``/dev`` is its own: ``/dev/nvidia0`` and
``/dev/nvidia-caps/nvidia-cap66`` are character devices of majors without a driver. Opening one that a job may use
says ENXIO, one that it may not says EPERM. Debian 13's programs run in their own root there; ``/tmp`` and ``/dev`` are
shared, and ``bin`` holds programs of the usual names that go there. Nothing of the machine outside is touched.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .release import PROGRAMS, Release

GPU_MAJOR, CAPS_MAJOR = 120, 122
"""Majors for local use, as the simulator's own (Linux gives them to no driver)."""
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
exec sleep infinity
"""


class Ran(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str


class Bed:
    """One cluster in one folder. ``folder`` must lie below /tmp. Use ``close``."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release = release
        self.folder = folder
        self.etc = folder / "etc"
        self.bin = folder / "bin"
        self.logs = folder / "log"
        self.ports = Ports()
        for each in (self.etc, self.bin, self.logs, folder / "spool", folder / "run", folder / "state"):
            each.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.host = socket.gethostname().partition(".")[0]
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._programs()
        self._machine = self._enter()
        self._munge()

    # The machine

    def _enter(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, "DEV": str(self.folder / "dev"), "ROOT": self.release.root}
        with open(self.logs / "machine.log", "wb") as log:
            machine = subprocess.Popen(["unshare", "--mount", "sh", "-c", _MACHINE], env=env, stderr=log)
        until(lambda: _sleeping(machine), f"the machine did not start: {self.log('machine')}")
        return machine

    def _programs(self) -> None:
        """The release's programs by their usual names, whatever root they live in."""
        for name in PROGRAMS:
            place = shutil.which(name, path=self.release.path) or name
            inner = place.removeprefix(self.release.root.rstrip("/"))
            way = f"exec chroot {self.release.root} {inner}" if self.release.chrooted else f"exec {inner}"
            (self.bin / name).write_text(f'#!/bin/sh\n{way} "$@"\n')
            (self.bin / name).chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """What programs inside are started with."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "ALIQUOT_SIM"))}
        path = f"{self.bin}:{os.environ['PATH']}"
        return kept | {"SLURM_CONF": str(self.etc / "slurm.conf"), "PATH": path}

    def inside(self, *words: str) -> list[str]:
        """The command line that runs a program inside the machine."""
        return ["nsenter", "--mount", f"--target={self._machine.pid}", "--wd=/tmp", "--", *words]

    def run(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S) -> Ran:
        """Run a program inside the machine to its end."""
        done = subprocess.run(
            self.inside(*words), capture_output=True, text=True, env=self.env | dict(env or {}), timeout=timeout
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, timeout: float = TIMEOUT_S) -> str:
        """``run``, where nothing but success will do: its stdout."""
        done = self.run(*words, timeout=timeout)
        assert done.code == 0, (words, done)
        return done.out

    def aliquot(self, *words: str, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S) -> Ran:
        """Our own command line inside the machine."""
        return self.run(sys.executable, "-m", "aliquot", *words, env=env, timeout=timeout)

    def start(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A daemon inside the machine, ended by ``close`` or ``stop``; its words go to ``logs/NAME.log``."""
        with open(self.logs / f"{name}.log", "ab") as log:
            daemon = subprocess.Popen(
                self.inside(*words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env | dict(env or {}),
                start_new_session=True,
            )
        self.daemons[name] = daemon
        return daemon

    def stop(self, name: str, sign: int = signal.SIGTERM) -> None:
        """End a daemon (its process, not what it started: jobs go on), and wait for that."""
        daemon = self.daemons.pop(name)
        with contextlib.suppress(ProcessLookupError):
            daemon.send_signal(sign)
        try:
            daemon.wait(15)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def log(self, name: str) -> str:
        """What a daemon said."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    # Device nodes

    def device(self, path: str, major: int, minor: int) -> None:
        """A character device inside the machine, unless it is there: ``/dev/nvidia0``."""
        self.ok("sh", "-c", f'mkdir -p "$(dirname {path})"; [ -e {path} ] || mknod -m 666 {path} c {major} {minor}')

    def gpu_devices(self, minor: int, *capabilities: int) -> None:
        """The nodes of a GPU, and of capabilities by their minor."""
        self.device(f"/dev/nvidia{minor}", GPU_MAJOR, minor)
        self.device("/dev/nvidiactl", GPU_MAJOR, 255)
        for each in capabilities:
            self.device(f"/dev/nvidia-caps/nvidia-cap{each}", CAPS_MAJOR, each)

    # The cluster

    def _munge(self) -> None:
        place = self.folder / "munge"
        place.mkdir(mode=0o755)
        key = place / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {n: str(place / n) for n in ("socket", "pid", "log", "seed")}
        self.start(
            "munged",
            "munged",
            "--foreground",
            f"--key-file={key}",
            f"--socket={files['socket']}",
            f"--pid-file={files['pid']}",
            f"--log-file={files['log']}",
            f"--seed-file={files['seed']}",
        )
        until(lambda: (place / "socket").exists(), "munged did not start")

    def conf(self, nodes: str, *, more: str = "", gres: str = "", cgroup: str = "") -> None:
        """Writes slurm.conf (with ``nodes``: node and partition lines), gres.conf and cgroup.conf."""
        text = f"""ClusterName=bed
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={self.ports.of("slurmctld")}
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={self.folder}/munge/socket
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool/%n
SlurmdPidFile={self.folder}/run/%n.pid
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmdPort={self.ports.of("slurmd")}
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
MinJobAge=300
SchedulerParameters=sched_interval=5,bf_interval=5
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
{more}
{nodes}
"""
        if not self.release.chrooted:
            text = text.replace("CryptoType=crypto/munge\n", "")
        else:
            text = text.replace("CryptoType=crypto/munge", "CredType=cred/munge")
            cgroup = cgroup or "CgroupPlugin=disabled\n"
        (self.etc / "slurm.conf").write_text(text)
        (self.etc / "gres.conf").write_text(gres)
        (self.etc / "cgroup.conf").write_text(cgroup)

    def node(self, name: str, rest: str = "CPUs=1 RealMemory=1000 State=UNKNOWN") -> str:
        """A node line for slurm.conf."""
        return f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={self.ports.of(name)} {rest}"

    def controller(self) -> None:
        """Starts slurmctld; back when it answers."""
        self.start("slurmctld", "slurmctld", "-D")
        until(lambda: self.run("scontrol", "ping").out.find("UP") >= 0, f"slurmctld: {self.log('slurmctld')[-2000:]}")

    def slurmd(self, name: str, *words: str) -> None:
        """Starts the slurmd of a node; back when it is registered."""
        self.start(name, "slurmd", "-D", "-N", name, *words)
        until(lambda: self.registered(name), f"slurmd {name}: {self.log(name)[-2000:]}")

    def registered(self, name: str) -> bool:
        state = self.state(name)
        return bool(state) and not any(w in state for w in ("UNKNOWN", "DOWN", "NOT_RESPONDING", "*"))

    def state(self, name: str) -> str:
        """A node's state as Slurm says it; "" for a node that Slurm does not know."""
        return self.field(name, "State")

    def field(self, name: str, key: str) -> str:
        """One field of ``scontrol show node``."""
        done = self.run("scontrol", "-o", "show", "node", name)
        words = [w.partition("=") for w in done.out.split()] if done.code == 0 else []
        return next((value for k, _, value in words if k == key), "")

    def job(self, number: str, key: str) -> str:
        """One field of ``scontrol show job``."""
        done = self.run("scontrol", "-o", "show", "job", "-d", number)
        words = [w.partition("=") for w in done.out.split()] if done.code == 0 else []
        return next((value for k, _, value in words if k == key), "")

    def submit(self, script: str, *words: str) -> Ran:
        """``sbatch --parsable`` of a script; its output lies in ``out/JOB``."""
        (self.folder / "out").mkdir(exist_ok=True)
        wrap = ["--parsable", f"--output={self.folder}/out/%j", f"--chdir={self.folder}", f"--wrap={script}"]
        done = self.run("sbatch", *words, *wrap)
        return Ran(done.code, done.out.strip(), done.err)

    def close(self) -> None:
        """Ends jobs and daemons, and the machine."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.run("scancel", "--signal=KILL", "--user=root", timeout=10)
        for name in [n for n in self.daemons if n != "munged"]:
            self.stop(name)
        for name in list(self.daemons):
            self.stop(name, signal.SIGKILL)
        self._strays()
        self._machine.kill()
        self._machine.wait()

    def _strays(self) -> None:
        """Whatever still runs in the machine's namespace: steps, daemons that re-executed themselves."""
        mine = os.readlink(f"/proc/{self._machine.pid}/ns/mnt")
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and int(entry) != self._machine.pid and os.readlink(f"/proc/{entry}/ns/mnt") == mine:
                    os.kill(int(entry), signal.SIGKILL)


class Ports:
    """Free TCP ports by name, the same for a name each time."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._known:
            with socket.socket() as door:
                door.bind(("127.0.0.1", 0))
                self._known[name] = door.getsockname()[1]
        return self._known[name]


def until(true: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    """Wait for something to be so. The words may be expensive: they are made once."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _sleeping(machine: subprocess.Popen[bytes]) -> bool:
    try:
        return Path(f"/proc/{machine.pid}/comm").read_text().strip() == "sleep"
    except OSError:
        return False


__all__ = ["CAPS_MAJOR", "GPU_MAJOR", "Bed", "Ports", "Ran", "until"]
