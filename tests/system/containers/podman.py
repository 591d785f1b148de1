"""Containers run by Podman and runc in a separate store. The host's own containers are not touched."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pynvml

IMAGE = "localhost/aliquot-test:1"
_LIMITS = ("--ulimit", "nofile=1024:2048", "--ulimit", "nproc=4096:4096")
"""Runtimes raise limits, which root without CAP_SYS_RESOURCE may not do."""

_TIMEOUT_S = 120


class Done(NamedTuple):
    """Result of a container."""

    code: int
    out: str
    err: str


class Podman:
    """A container engine that reads CDI files only from ``cdi``. ``directory`` holds its store, and ``close`` removes
    it.

    Containers get this host's programs and this Python with nvidia-ml-py, read-only: ``run("python3", ...)``.
    """

    def __init__(self, directory: Path, cdi: Path | None = None, events: str = "none") -> None:
        self.directory = directory
        self._events = events
        self.cdi = cdi or directory / "cdi"
        self.cdi.mkdir(parents=True, exist_ok=True)
        self._image = False
        self.environment = {"CONTAINERS_CONF": str(self._settings())}
        self._env = {**os.environ, **self.environment}

    def run(
        self,
        *words: str,
        devices: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        mounts: Mapping[str, str] | None = None,
    ) -> Done:
        """Run a container to its end. ``devices`` are CDI names (``nvidia.com/gpu=...``). ``mounts`` maps paths in the
        container to read-only host folders.
        """
        return self._podman("run", "--rm", *self._line(words, devices, env, options, mounts))

    def start(
        self,
        name: str,
        *words: str,
        devices: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        mounts: Mapping[str, str] | None = None,
    ) -> Done:
        """Start a container with this name and leave it running. The code is not 0 if it does not start."""
        return self._podman("run", "--detach", "--name", name, *self._line(words, devices, env, options, mounts))

    def execute(self, name: str, *words: str) -> Done:
        """Run a program in a running container."""
        return self._podman("exec", name, *words)

    def stop(self, name: str) -> Done:
        """Stop a container and remove it."""
        return self._podman("rm", "--force", "--time", "0", name)

    def _line(
        self,
        words: Sequence[str],
        devices: Sequence[str],
        env: Mapping[str, str] | None,
        options: Sequence[str],
        mounts: Mapping[str, str] | None,
    ) -> list[str]:
        self.build()
        line = ["--network", "none", *_LIMITS, *options]
        line += [word for name in devices for word in ("--device", name)]
        line += [word for key, value in (env or {}).items() for word in ("--env", f"{key}={value}")]
        places = system() | dict(mounts or {})
        line += [word for inside, host in places.items() for word in ("--volume", f"{host}:{inside}:ro")]
        return [*line, IMAGE, *words]

    def close(self) -> None:
        """Remove the store and the containers that still run from it."""
        self._podman("rm", "--all", "--force", "--time", "0")
        self._podman("rmi", "--all", "--force")
        for name in ("root", "run", "image"):
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def _settings(self) -> Path:
        path = self.directory / "containers.conf"
        path.write_text(f'[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "{self._events}"\n')
        return path

    def build(self) -> None:
        """Build the image unless it exists."""
        if self._image:
            return
        folder = self.directory / "image"
        folder.mkdir(exist_ok=True)
        shutil.copy(shutil.which("busybox") or "busybox", folder / "busybox")
        (folder / "Containerfile").write_text("FROM scratch\nCOPY busybox /bin/sh\nCOPY busybox /bin/busybox\n")
        done = self._podman("build", "--network", "none", "--tag", IMAGE, str(folder))
        if done.code:
            raise RuntimeError(f"podman build: {done.err}")
        self._image = True

    def execute_run(self, *words: str, options: Sequence[str], mounts: Mapping[str, str]) -> Done:
        """Run a container with the caller's options, such as ``--rm`` or ``--detach``."""
        return self._podman("run", *self._line(words, (), None, options, mounts))

    def ask(self, *words: str) -> Done:
        """Run any other ``podman`` command."""
        return self._podman(*words)

    def clean(self) -> None:
        """Remove every container."""
        self._podman("rm", "--all", "--force", "--time", "0")

    def program(self, path: Path) -> None:
        """Create an executable at this path that runs this Podman, for programs that call ``podman``."""
        path.write_text(f'#!/bin/sh\nexec {shlex.join(self._words())} "$@"\n')
        path.chmod(0o755)

    def _podman(self, *words: str) -> Done:
        line = [*self._words(), *words]
        done = subprocess.run(line, capture_output=True, text=True, env=self._env, timeout=_TIMEOUT_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def _words(self) -> list[str]:
        # Podman 4 reads CDI files only from /etc/cdi and /var/run/cdi. In a private mount namespace it finds the test's
        # files there, has its own /run, and cannot see the host's.
        run = self.directory / "run"
        (run / "cdi").mkdir(parents=True, exist_ok=True)
        bind = 'mount --bind "$0" /run && mount --bind "$1" /run/cdi && shift && '
        bind += "{ [ ! -d /etc/cdi ] || mount -t tmpfs none /etc/cdi; } && "
        # A runroot has at most 50 characters.
        store = ["--root", str(self.directory / "root"), "--runroot", "/run/podman"]
        engine = [shutil.which("podman") or "podman", *store, "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        return ["unshare", "--mount", "sh", "-c", f'{bind}exec "$@"', str(run), str(self.cdi), *engine]


def system() -> dict[str, str]:
    """Return the mounts that let this host's programs run in an empty image: container path to host folder."""
    places = {path: os.path.realpath(path) for path in ("/usr", "/lib", "/lib64", "/etc/alternatives")}
    places["/opt/nvml/pynvml.py"] = str(pynvml.__file__)
    base = sys.base_prefix
    if not base.startswith("/usr/"):
        places[base] = base
    return {inside: host for inside, host in places.items() if os.path.exists(host)}


def python() -> str:
    """Return the path of this Python in a container."""
    return os.path.join(sys.base_prefix, "bin", f"python{sysconfig.get_python_version()}")


@cache
def unusable() -> str:
    """Return why containers cannot run here, or "" if they can. Cached per process: the check costs a build and a
    container.
    """
    absent = [name for name in ("podman", "runc", "busybox", "unshare") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: apt-get install podman runc busybox-static)"
    if os.geteuid():
        return "containers need root"
    with tempfile.TemporaryDirectory(prefix="aq-", ignore_cleanup_errors=True) as directory:
        engine = Podman(Path(directory))
        try:
            done = engine.run("/bin/busybox", "true")
        except (RuntimeError, subprocess.SubprocessError) as error:
            return str(error).strip()
        finally:
            engine.close()
    return "" if done.code == 0 else f"podman does not run here: {done.err.strip()[-300:]}"
