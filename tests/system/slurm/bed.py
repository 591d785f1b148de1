"""A real Slurm cluster on a single host: munged, slurmctld, and slurmds over device nodes of simulated GPUs.

Usage. Each test runs once per release, 22.05 and 24.11::

    def test_something(bed: Bed) -> None:
        bed.gpu_devices(0, 66, 67)                    # /dev/nvidia0, /dev/nvidia-caps/nvidia-cap66 and 67
        bed.conf(bed.node("n1", "CPUs=2 Gres=gpu:1") + "\nPartitionName=all Nodes=ALL Default=YES", gres="...")
        bed.controller()
        bed.slurmd("n1")                              # or bed.dynamic("n1", "CPUs=2 Gres=gpu:1 Feature=mig")
        bed.run("sinfo", "-N")                        # a program of that release, inside the machine
        bed.aliquot("slurm", "render", "--sim", "n1")

Daemons and clients run in a mount namespace, "the machine" (see ``machine``), with its own ``/dev``. There
``/dev/nvidia0`` and ``/dev/nvidia-caps/nvidia-cap66`` are character devices whose majors have no driver. With
``bed.conf(..., constrain=True)`` Slurm constrains devices with real control groups. To open a device that a job may use
then fails with ENXIO, and any other with EPERM.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from aliquot.core.model.inventory import Inventory

from .machine import Machine, Ports, Ran, compiled, until
from .release import Release

GPU_MAJOR, CAPS_MAJOR = 120, 122
"""Majors for local use, as in the simulator (Linux assigns them to no driver)."""
_CONSTRAIN = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainDevices=yes\n"


class Rest(NamedTuple):
    """A slurmrestd: ``http://127.0.0.1:PORT``, its socket, and a token."""

    url: str
    socket: str
    token: str


class Bed(Machine):
    """A cluster in a folder. ``folder`` must be below /tmp. Call ``close`` at the end."""

    def __init__(self, release: Release, folder: Path) -> None:
        super().__init__(release, folder)
        self._addresses: dict[str, int] = {}
        for each in ("spool", "run", "state", "out"):
            (folder / each).mkdir()
        (folder / "jwt.key").write_bytes(os.urandom(32))
        (folder / "jwt.key").chmod(0o600)
        self._munge()

    # Device nodes

    def device(self, path: str, major: int, minor: int) -> None:
        """Create a character device inside the machine, such as ``/dev/nvidia0``, unless it exists."""
        self.devices([(path, major, minor)])

    def gpu_devices(self, minor: int, *capabilities: int) -> None:
        """Create the device nodes of a GPU, and of capabilities by their minor."""
        caps = [(f"/dev/nvidia-caps/nvidia-cap{each}", CAPS_MAJOR, each) for each in capabilities]
        self.devices([(f"/dev/nvidia{minor}", GPU_MAJOR, minor), ("/dev/nvidiactl", GPU_MAJOR, 255), *caps])

    def devices_of(self, inventory: Inventory) -> None:
        """Create the device nodes of a node's current GPUs and instances, and of the two capabilities of
        administrators. Nodes of destroyed instances stay, as the kernel's do.
        """
        for gpu in inventory.gpus:
            minors = [i.capability_minor for i in gpu.instances]
            minors += [c.capability_minor for i in gpu.instances for c in i.compute_instances]
            self.gpu_devices(gpu.minor, 1, 2, *minors)

    def devices(self, nodes: Iterable[tuple[str, int, int]]) -> None:
        """Create the missing ones of these character devices (path, major, minor), with the modes that the driver
        requests.
        """
        made = []
        for path, major, minor in nodes:
            mode = {CAPS_MAJOR: "400" if minor == 1 else "444"}.get(major, "666")
            folder = os.path.dirname(path)
            made.append(f"[ -e {path} ] || {{ mkdir -p {folder} && mknod -m {mode} {path} c {major} {minor}; }}")
        self.ok("sh", "-ec", "\n".join(made))

    # The cluster

    def _munge(self) -> None:
        place = self.folder / "munge"
        place.mkdir(mode=0o755)
        key = place / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = [f"--{n}-file={place / n}" for n in ("pid", "log", "seed")]
        self.start("munged", "munged", "--foreground", f"--key-file={key}", f"--socket={place / 'socket'}", *files)
        until(lambda: (place / "socket").exists(), lambda: f"munged did not start: {self.log('munged')}")

    def conf(
        self,
        nodes: str,
        *,
        more: str = "",
        gres: str = "",
        cgroup: str = "",
        constrain: bool = False,
        returns: bool = True,
    ) -> None:
        """Write slurm.conf (with ``nodes``: node and partition lines), gres.conf and cgroup.conf.

        With ``constrain`` jobs may open only the devices that they were given (skip if ``cgroups.missing`` gives a
        reason). With ``returns`` Slurm itself brings back a node that answers, even if an operator set it down.
        """
        if constrain:
            self.cgroups.make()
            cgroup += _CONSTRAIN
        elif self.release.chrooted and not cgroup:
            cgroup = "CgroupPlugin=disabled\n"
        kind = "cgroup" if constrain else ""
        text = f"""ClusterName=bed
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={self.ports.of("slurmctld")}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge/socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={self.folder}/jwt.key
CredType=cred/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool/%n
SlurmdPidFile={self.folder}/run/%n.pid
SlurmctldPidFile={self.folder}/run/slurmctld.pid
SlurmdPort={self.ports.of("slurmd")}
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/{kind or "linuxproc"}
TaskPlugin=task/{kind or "none"}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService={2 if returns else 1}
SlurmctldTimeout=30
SlurmdTimeout=30
InactiveLimit=0
KillWait=5
MinJobAge=300
SchedulerParameters=sched_interval=5,bf_interval=5,batch_sched_delay=0
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
{more}
{nodes}
"""
        for name, content in (("slurm.conf", text), ("gres.conf", gres), ("cgroup.conf", cgroup)):
            (self.etc / name).write_text(content)

    def node(self, name: str, rest: str = "CPUs=1 RealMemory=1000 State=UNKNOWN") -> str:
        """Return a node line for slurm.conf."""
        return f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={self.ports.of(name)} {rest}"

    def controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        daemon = self.start("slurmctld", "slurmctld", "-D")
        until(
            lambda: daemon.poll() is not None or "UP" in self.run("scontrol", "ping").out, "slurmctld does not answer"
        )
        assert daemon.poll() is None, f"slurmctld: {self.log('slurmctld')[-2000:]}"

    def slurmd(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        """Start the slurmd of a node and wait until it is registered."""
        daemon = self.start(name, "slurmd", "-D", "-N", name, *words, env=env)
        until(
            lambda: daemon.poll() is not None or self.registered(name),
            lambda: f"slurmd {name}: {self.state(name)}: {self.log(name)[-2000:]}",
        )
        assert daemon.poll() is None, f"slurmd {name}: {self.log(name)[-2000:]}"

    def dynamic(self, name: str, record: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        """Start a slurmd that registers its own node. There may be several, each with a separate address. ``record`` is
        the value of ``--conf``. A slurmd that is started in another way needs the environment of ``dynamic_env``.
        """
        self.slurmd(name, "-Z", "--conf", record, *words, env=self.dynamic_env(name) | dict(env or {}))

    def dynamic_env(self, name: str) -> dict[str, str]:
        """Return the environment that makes a dynamic node look like a separate host. slurmctld reaches all of them at
        the same port (22.05 refuses ``--conf Port=``), at the address that they connect from.
        """
        library = compiled("address.c", "-shared", "-fPIC", "-ldl")
        number = self._addresses.setdefault(name, 11 + len(self._addresses))
        return {"LD_PRELOAD": str(library), "ALIQUOT_TEST_ADDRESS": f"127.0.0.{number}"}

    def rest(self, *, user: str = "root", age: int = 3600) -> Rest:
        """Start slurmrestd on TCP and on a socket, and create a token for a user. It supports each data parser version
        of the release.
        """
        place = Rest(f"http://127.0.0.1:{self.ports.of('slurmrestd')}", str(self.folder / "run/rest"), "")
        (self.folder / "run").chmod(0o777)
        chosen = ("-s", "openapi/slurmctld", "-d", "v0.0.40,v0.0.41,v0.0.42")
        words = chosen if self.release.chrooted else ("-s", "openapi/v0.0.36,openapi/v0.0.37,openapi/v0.0.38")
        unprivileged = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        root = ("chroot", "--userspec=65534:65534", self.release.root) if self.release.chrooted else unprivileged
        listen = (place.url.removeprefix("http://"), f"unix:{place.socket}")
        env = {"SLURM_JWT": "daemon"}
        daemon = self.start("slurmrestd", *root, "slurmrestd", "-a", "rest_auth/jwt", *words, *listen, env=env)
        until(lambda: daemon.poll() is not None or Path(place.socket).exists(), "slurmrestd does not listen")
        assert daemon.poll() is None, self.log("slurmrestd")
        return place._replace(token=self.token(user, age))

    def token(self, user: str = "root", age: int = 3600) -> str:
        """Return a JWT for a user that is valid for ``age`` seconds."""
        answer = self.ok("scontrol", "token", f"username={user}", f"lifespan={age}")
        return answer.strip().removeprefix("SLURM_JWT=")

    def registered(self, name: str) -> bool:
        """Report whether the node's slurmd has registered and the node is healthy."""
        state = self.state(name)
        return bool(state) and not any(w in state for w in ("UNKNOWN", "DOWN", "NOT_RESPONDING", "*"))

    def state(self, name: str) -> str:
        """Return a node's state as Slurm shows it, or "" for an unknown node."""
        return self.field(name, "State")

    def field(self, name: str, key: str) -> str:
        """Return a field of ``scontrol show node``."""
        done = self.run("scontrol", "-o", "show", "node", name)
        words = [w.partition("=") for w in done.out.split()] if done.code == 0 else []
        return next((value for k, _, value in words if k == key), "")

    def job(self, number: str, key: str) -> str:
        """Return a field of ``scontrol show job``."""
        done = self.run("scontrol", "-o", "show", "job", "-d", number)
        words = [w.partition("=") for w in done.out.split()] if done.code == 0 else []
        return next((value for k, _, value in words if k == key), "")

    def submit(self, script: str, *words: str) -> Ran:
        """Run ``sbatch --parsable`` with a script. Its output is in ``out/JOB``."""
        wrap = ["--parsable", f"--output={self.folder}/out/%j", f"--chdir={self.folder}", f"--wrap={script}"]
        done = self.run("sbatch", *words, *wrap)
        return Ran(done.code, done.out.strip(), done.err)


__all__ = ["CAPS_MAJOR", "GPU_MAJOR", "Bed", "Ports", "Ran", "Rest", "until"]
