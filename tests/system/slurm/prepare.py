"""``make slurm-trixie``: Debian 13 with its Slurm, its docker and their dependencies, in a folder of the cache.

Beside it is the NVML plugin of the Slurm that is installed here. Debian 12 has this plugin in the separate area
contrib.

The folder is made with the mirror and the proxies of this host's apt. It appears complete or not at all, is not touched
if it exists, and may be deleted at any time. Mounts during the installation are made in a separate namespace and end
with it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLUGIN = "slurm-wlm-nvml-plugin"
SUITE, AREAS = "trixie", "main,contrib"
PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmrestd", "munge"),
    *("slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin", PLUGIN),
    *("slurmdbd", "slurm-wlm-mysql-plugin"),
    *("docker.io", "docker-cli", "docker-compose", "containerd", "runc"),
)
"""``PLUGIN`` implements AutoDetect=nvml. Debian 12's docker does not support CDI, Debian 13's (26) does."""
_STAMP = ".aliquot-made-of"
_INSTALL = """
set -e
mount -t proc proc "$1/proc"
printf '#!/bin/sh\\nexit 101\\n' >"$1/usr/sbin/policy-rc.d"
chmod 755 "$1/usr/sbin/policy-rc.d"
chroot "$1" apt-get update -qq
chroot "$1" apt-get install -qq --no-install-recommends $2
chroot "$1" apt-get clean
rm -rf "$1"/var/lib/apt/lists/*
"""


class MissingError(Exception):
    """A missing requirement of this host, with the way to get it."""


def prepare(folder: Path) -> Path:
    """Make the root in a folder, unless it exists with everything that it should have. Raises MissingError."""
    if os.geteuid() != 0:
        raise MissingError("Debian 13 in a folder needs root: debootstrap makes device nodes and enters it")
    for program in ("debootstrap", "unshare", "chroot"):
        if not shutil.which(program):
            raise MissingError(f"{program} is not installed: apt-get install debootstrap")
    root, wanted = folder / SUITE, _digest()
    with _alone(folder):
        for half in folder.glob(".new-*"):
            _remove(half)
        if _text(root / _STAMP) == wanted:
            return root
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-", ignore_cleanup_errors=True) as scratch:
            made = Path(scratch) / SUITE
            _bootstrap(made)
            (made / _STAMP).write_text(wanted)
            if root.exists():
                os.rename(root, Path(scratch) / "former")
            os.rename(made, root)
    return root


def plugin(folder: Path) -> Path:
    """Download the NVML plugin of this host's Slurm unless it exists, and return its folder for ``PluginDir``. Raises
    MissingError.
    """
    home = folder / "plugins"
    with _alone(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        if (home / "gpu_nvml.so").exists():
            return home
        place = Path(scratch)
        (place / "sources.list").write_text(f"deb {_mirror()} {_codename()} contrib\n")
        for each in ("lists/partial", "cache/archives/partial"):
            (place / each).mkdir(parents=True)
        own = {"Etc::SourceList": place / "sources.list", "State::Lists": place / "lists", "Cache": place / "cache"}
        options = [f"--option=Dir::{key}={value}" for key, value in {**own, "Etc::SourceParts": "-"}.items()]
        _run("apt-get", *options, "update", "-qq")
        _run("apt-get", *options, "download", "-qq", PLUGIN, cwd=place)
        _run("dpkg-deb", "-x", *map(str, place.glob("*.deb")), str(place / "root"))
        found = next(place.glob("root/**/gpu_nvml.so"), None)
        if found is None:
            raise MissingError(f"{PLUGIN} has no gpu_nvml.so")
        os.rename(found.parent, home)
    return home


def _codename() -> str:
    found = re.search(r'^VERSION_CODENAME="?(\w+)', Path("/etc/os-release").read_text(), re.MULTILINE)
    if not found:
        raise MissingError("/etc/os-release names no release: is this a Debian?")
    return found[1]


def _bootstrap(root: Path) -> None:
    mirror, settings = _mirror(), _settings()
    _private("debootstrap", "--variant=minbase", f"--components={AREAS}", SUITE, str(root), mirror)
    (root / "etc/apt/sources.list").write_text(f"deb {mirror} {SUITE} {AREAS.replace(',', ' ')}\n")
    (root / "etc/apt/apt.conf.d/90outside").write_text("".join(f"{line}\n" for line in settings))
    _private("sh", "-c", _INSTALL, "sh", str(root), " ".join(PACKAGES))


def _private(*words: str) -> None:
    """Run a command in a separate mount namespace, so that no mount outlives it."""
    _run("unshare", "--mount", "--propagation", "private", *words)


def _run(*words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, env=_environment(), timeout=1800, check=False, close_fds=False
    )
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-8:]
        raise MissingError(f"{shlex.join(words[:6])} failed:\n" + "\n".join(last))
    return done.stdout


def _environment() -> dict[str, str]:
    """Return an English environment with apt's proxies for debootstrap, which does not read apt's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "LD_"))}
    for scheme in ("http", "https"):
        found = re.search(rf'^Acquire::{scheme}::Proxy "([^"]+)";$', "\n".join(_settings()), re.MULTILINE)
        if found and found[1] != "DIRECT":
            kept.setdefault(f"{scheme}_proxy", found[1])
    return kept | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def _settings() -> list[str]:
    """Return apt's settings for its mirror on this host: proxies, certificates, retries."""
    done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError("apt-config failed: is this a Debian?")
    return [x for x in done.stdout.splitlines() if re.match(r"Acquire::(https?(::|\s)|Retries|ForceIPv)", x)]


def _mirror() -> str:
    """Return the mirror of this host's own Debian, which also has the next release."""
    listed = _run("apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)", "Created-By: Packages")
    found = [line.split()[-1] for line in listed.splitlines() if re.search(r"/debian/?$", line)]
    if not found:
        raise MissingError("apt lists no Debian mirror (apt-get update?)")
    return found[0].rstrip("/")


def _digest() -> str:
    return hashlib.sha256("\n".join((SUITE, AREAS, _INSTALL, *sorted(PACKAGES))).encode()).hexdigest()


def _remove(half: Path) -> None:
    """Remove what an interrupted run left. Its mounts ended with the run, so nothing is mounted in it."""
    mounts = [x.split()[4] for x in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [x for x in mounts if x.startswith(f"{half.resolve()}/")]
    if below:
        raise MissingError(f"something is mounted in {half}: umount {' '.join(below)}")
    shutil.rmtree(half)


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)  # a download that outlives its killed run blocks the next run
        yield


def main() -> int:
    """Return 0, or 1 if something is missing."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from system.slurm.release import trixie

    try:
        print(f"Debian 13 for the tests: {prepare(trixie().parent)}")
        print(f"{PLUGIN} for the tests: {plugin(trixie().parent)}")
    except MissingError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
