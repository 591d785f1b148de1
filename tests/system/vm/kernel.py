"""A kernel for the guest: Debian's, from its package, and the test module built for it. The cache keeps both."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "module"
SERIES = "6.1"
"""The module implements the mdev and VFIO interfaces of this series (Debian 12)."""
IMAGES = f"{SERIES}.*/boot/vmlinuz-*"
KEPT = ("drivers/vfio", "drivers/virtio", "drivers/nvme", "fs/9p", "fs/netfs", "fs/fscache", "fs/overlayfs", "net/9p")
"""Modules that the guest loads, with all that they need: a small part of some 300 MB."""
SOFT = ("kernel/crypto/", "kernel/lib/")
"""Modules found by name at run time (a CRC by nvme), so that no dependency list shows them."""
TOOLS = {"apt-get": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "make": "make"}


class MissingError(Exception):
    """A missing requirement of the guest on this machine, and how to install it."""


@dataclass(frozen=True)
class Kernel:
    """``modules`` is a folder for ``/lib/modules/<release>``. ``module`` is the stand-in for the driver."""

    release: str
    image: Path
    modules: Path
    module: Path


def cache() -> Path:
    """Return the folder that is kept outside the repository, over many runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aliquot-test-vm"


def ready(folder: Path) -> Kernel:
    """Return the newest kernel in the cache, with its module built for the current sources. Raises MissingError."""
    with _alone(folder):
        releases = sorted(folder.glob(IMAGES), key=lambda path: path.stat().st_mtime)
        if not releases:
            raise MissingError(f"no kernel for the guest in {folder}: make vm-kernel downloads one (85 MB)")
        return _kernel(releases[-1].parent.parent)


def prepare(folder: Path) -> Kernel:
    """Download and unpack Debian's current kernel unless it is cached. If apt cannot report one, use a cached one.
    Raises MissingError.
    """
    try:
        release = _release()
    except MissingError:
        if any(folder.glob(IMAGES)):
            return ready(folder)
        raise
    with _alone(folder):
        home = folder / release
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
                _unpack(release, Path(scratch))
                os.rename(_trim(Path(scratch) / "root", release), home)
        return _kernel(home)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path, cwd: Path | None = None, patience: float = 300) -> str:
    """Return the output. Raises MissingError with its last lines."""
    program = str(command[0])
    if not shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        raise MissingError(f"{program} is not installed: apt-get install {TOOLS.get(program, program)}")
    done = subprocess.run(
        command, cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=patience, check=False
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise MissingError(f"{' '.join(map(str, command[:3]))} failed: {' / '.join(last)}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return an environment in English, with root's directories in PATH and no variables of an outer make."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return kept | {"LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}


def _release() -> str:
    """Return the release that ``linux-image-amd64`` stands for today."""
    answer = _run("apt-cache", "depends", "linux-image-amd64")
    found = re.search(rf"Depends: linux-image-({re.escape(SERIES)}\.\S+-amd64)$", answer, re.MULTILINE)
    if not found:
        raise MissingError(f"apt offers no linux-image-amd64 of series {SERIES} (Debian 12 has one; apt-get update?)")
    return found[1]


def _packages(release: str) -> tuple[str, ...]:
    common = release.removesuffix("-amd64")
    return (
        f"linux-image-{release}",
        f"linux-headers-{release}",
        f"linux-headers-{common}-common",
        f"linux-kbuild-{SERIES}",
    )


def _unpack(release: str, scratch: Path) -> None:
    _run("apt-get", "download", "-q", *_packages(release), cwd=scratch)
    for package in scratch.glob("*.deb"):
        _run("dpkg-deb", "-x", package, scratch / "root")


def _trim(root: Path, release: str) -> Path:
    """Keep the files in use, and make the headers work at their new location."""
    modules = root / "lib/modules" / release
    _run("depmod", "-b", root, release)
    kept = _closure((modules / "modules.dep").read_text())
    for module in modules.rglob("*.ko"):
        if module.relative_to(modules).as_posix() not in kept:
            module.unlink()
    _run("depmod", "-b", root, release)
    shutil.rmtree(root / "usr/share", ignore_errors=True)
    makefile = root / f"usr/src/linux-headers-{release}/Makefile"
    common = f"linux-headers-{release.removesuffix('-amd64')}-common"
    makefile.write_text(f"include $(dir $(abspath $(lastword $(MAKEFILE_LIST))))../{common}/Makefile\n")
    return root


def _closure(dependencies: str) -> set[str]:
    """Return the modules of the kept folders and all that they need. ``dependencies`` is modules.dep, complete per
    line.
    """
    rows = [line.partition(":") for line in dependencies.splitlines()]
    wanted = [(path, rest.split()) for path, _, rest in rows if path.removeprefix("kernel/").startswith(KEPT)]
    soft = [path for path, _, _ in rows if path.startswith(SOFT)]
    return {each for path, needs in wanted for each in (path, *needs)} | set(soft)


def _kernel(home: Path) -> Kernel:
    release = home.name
    return Kernel(release, _image(home), home / "lib/modules" / release, _module(home))


def _image(home: Path) -> Path:
    """Unpack the kernel once. Debian's image unpacks itself, which takes seconds in an emulated machine."""
    image = home / f"boot/vmlinux-{home.name}"
    if not image.exists():
        packed = (home / f"boot/vmlinuz-{home.name}").read_bytes()
        sectors = packed[0x1F1]  # setup_sects of the boot protocol
        offset, size = struct.unpack_from("<II", packed, 0x248)  # payload_offset, payload_length
        start = (sectors + 1) * 512 + offset
        new = image.with_name("new")
        new.write_bytes(lzma.LZMADecompressor().decompress(packed[start : start + size]))
        new.rename(image)
    return image


def _module(home: Path) -> Path:
    """Build the module once for each state of the sources."""
    sources = sorted(path for path in SOURCES.iterdir() if path.suffix in (".c", ".h") or path.name == "Kbuild")
    state = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    built = home / "module" / state / "nvidia-vgpu-vfio.ko"
    if not built.exists():
        if not shutil.which("gcc-12"):
            raise MissingError("the kernel's own compiler is not installed: apt-get install gcc-12")
        with tempfile.TemporaryDirectory(dir=home, prefix=".build-") as scratch:
            for path in sources:
                shutil.copy(path, scratch)
            _run("make", "-C", home / f"usr/src/linux-headers-{home.name}", f"M={scratch}", "modules")
            built.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(scratch) / built.name, built)
    return built
