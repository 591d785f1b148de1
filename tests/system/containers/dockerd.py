"""A separate Docker daemon, 25 or later, with its own data and socket and without network.

Its programs are the installed ones, or those of Debian 13.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from system.containers.podman import Done, system
from system.slurm.release import trixie

IMAGE = "aliquot-test:1"
_NEEDED = ("dockerd", "docker", "containerd", "containerd-shim-runc-v2")
_START_S = 30.0
_CALL_S = 120


def found(name: str) -> str:
    """Return the path of a Docker program: the installed one, else the one in Debian 13's folder. Its runc does not run
    outside that folder.
    """
    root = trixie()
    places = [os.environ.get("PATH", ""), "/usr/sbin", *(str(root / p) for p in ("usr/sbin", "usr/bin"))]
    places.append(str(root / "usr/libexec/docker/cli-plugins"))
    return shutil.which(name, path=":".join(places)) or ""


def unusable() -> str:
    """Return why no daemon can run here, or "" if one can."""
    if os.geteuid():
        return "containers need root"
    absent = [name for name in (*_NEEDED, "runc", "busybox") if not found(name)]
    if absent:
        return f"docker is not here ({', '.join(absent)}): make slurm-trixie"
    answer = subprocess.run([found("dockerd"), "--version"], capture_output=True, text=True).stdout
    major = answer.partition("version ")[2].partition(".")[0]
    return "" if major.isdigit() and int(major) >= 25 else f"docker takes CDI names since 25: {answer.strip()}"


class Dockerd:
    """The daemon. ``programs`` is a folder with ``docker`` for the front of PATH; ``environment`` goes with it."""

    def __init__(self, cdi: Path, **settings: Any) -> None:
        # A socket path has at most 108 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="aliquot-dockerd-"))
        self.programs = self.directory / "bin"
        self.programs.mkdir()
        for name in (*_NEEDED, "runc"):
            (self.programs / name).symlink_to(found(name))
        self.environment = {"DOCKER_HOST": f"unix://{self.directory}/docker.sock", "DOCKER_CONFIG": str(self.directory)}
        self._log = (self.directory / "log").open("wb")
        self._daemon = self._start(cdi, settings)

    def run(self, *words: str, mounts: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Done:
        """Run ``docker run`` with this host's programs mounted: options first, then the command after ``--``."""
        split = words.index("--")
        places = system() | dict(mounts or {})
        options = ["--network", "none", *words[:split]]
        options += [w for inside, host in places.items() for w in ("--volume", f"{host}:{inside}:ro")]
        options += [w for key, value in (env or {}).items() for w in ("--env", f"{key}={value}")]
        return self.docker("run", *options, IMAGE, *words[split + 1 :])

    def docker(self, *words: str) -> Done:
        """Run any other ``docker`` command."""
        line = [str(self.programs / "docker"), *words]
        env = {**os.environ, **self.environment}
        done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=_CALL_S)
        return Done(done.returncode, done.stdout, done.stderr)

    def clean(self) -> None:
        """Remove every container."""
        ids = self.docker("ps", "--all", "--quiet").out.split()
        if ids:
            self.docker("rm", "--force", *ids)

    def close(self) -> None:
        """Stop the daemon and remove all its files."""
        self.clean()
        self._daemon.terminate()
        try:
            self._daemon.wait(20)
        except subprocess.TimeoutExpired:
            self._daemon.kill()
            self._daemon.wait()
        self._log.close()
        for place in _mounted(self.directory):
            subprocess.run(["umount", "--lazy", place], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, cdi: Path, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        here = self.directory
        limits = {"nofile": {"Name": "nofile", "Hard": 2048, "Soft": 1024}}
        limits["nproc"] = {"Name": "nproc", "Hard": 4096, "Soft": 4096}
        config = {
            "data-root": str(here / "data"),
            "exec-root": str(here / "exec"),
            "pidfile": str(here / "pid"),
            "hosts": [self.environment["DOCKER_HOST"]],
            "iptables": False,
            "ip6tables": False,
            "bridge": "none",
            "userland-proxy": False,
            "default-ulimits": limits,
            "cdi-spec-dirs": [str(cdi)],
            "features": {"cdi": True},
            # NVIDIA's runtime is runc preceded by a hook; a test can check its environment.
            "runtimes": {"nvidia": {"path": str(self.programs / "runc")}},
        } | dict(settings)
        (here / "daemon.json").write_bytes(msgspec.json.encode(config))
        line = [str(self.programs / "dockerd"), "--config-file", str(here / "daemon.json")]
        env = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        daemon = subprocess.Popen(line, stdout=self._log, stderr=self._log, env=env, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while self.docker("version").code:
            if daemon.poll() is not None or time.monotonic() > deadline:
                daemon.kill()
                raise RuntimeError(f"dockerd does not start: {(here / 'log').read_text()[-600:]}")
            time.sleep(0.1)
        self._image()
        return daemon

    def _image(self) -> None:
        """Create an image with only busybox: device nodes come from CDI, programs from mounts."""
        root = self.directory / "image"
        (root / "bin").mkdir(parents=True)
        for name in ("busybox", "sh"):
            shutil.copy(found("busybox"), root / "bin" / name)
        archive = self.directory / "image.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        done = self.docker("import", str(archive), IMAGE)
        if done.code:
            raise RuntimeError(f"docker import: {done.err}")


def _mounted(directory: Path) -> Sequence[str]:
    with open("/proc/mounts") as file:
        places = [line.split()[1] for line in file]
    return sorted((p for p in places if p.startswith(f"{directory}/")), key=len, reverse=True)
