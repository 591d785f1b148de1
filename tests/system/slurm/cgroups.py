"""Control groups of a machine: Slurm's ``cgroup/v1`` on folders in this host's hierarchies, removed at the end.

Each bed has its own folder in every hierarchy, which its machine sees as ``/sys/fs/cgroup``. Two beds whose nodes have
the same name therefore do not conflict, and leftovers of jobs can be found.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

CONTROLLERS = ("freezer", "devices", "cpuset", "memory", "cpuacct")
_TOP = Path("/sys/fs/cgroup")


def missing() -> str:
    """Return why ``cgroup/v1`` cannot run here, or "" if it can."""
    for name in CONTROLLERS[:2]:
        if not (_TOP / name / "cgroup.procs").exists():
            return f"no control groups of version 1 here: {_TOP / name} is not mounted"
    trial = _TOP / "devices" / f"aliquot-try-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        return f"no control groups of our own: {error}"
    return ""


class Cgroups:
    """Hierarchies of a machine. ``inside`` runs a shell script in it; ``root`` is the folder that its programs see as
    ``/``.
    """

    def __init__(self, name: str, root: str, inside: Callable[[str], object]) -> None:
        self._name = name
        self._root = root.rstrip("/")
        self._inside = inside
        self._made: list[Path] = []

    def make(self) -> None:
        """Create the machine's hierarchies once."""
        if self._made:
            return
        names = [each for each in CONTROLLERS if (_TOP / each / "cgroup.procs").exists()]
        for each in names:
            home = _TOP / each / self._name
            home.mkdir()
            self._made.append(home)
            if each == "cpuset":
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (home / file).write_text((_TOP / each / file).read_text())
        lines = ["mkdir /tmp/.cg-$$", "mount -t tmpfs none /tmp/.cg-$$"]
        for each in names:
            lines += [f"mkdir /tmp/.cg-$$/{each}", f"mount --bind {_TOP}/{each}/{self._name} /tmp/.cg-$$/{each}"]
        lines.append(f"mount --rbind /tmp/.cg-$$ {_TOP}")
        if self._root:
            lines.append(f"mount --rbind /tmp/.cg-$$ {self._root}{_TOP}")
        lines += ["umount -l /tmp/.cg-$$", "rmdir /tmp/.cg-$$"]
        self._inside("\n".join(lines))

    def remove(self) -> None:
        """Remove the hierarchies after everything in them has ended. The kernel may need a moment."""
        deadline = time.monotonic() + 10
        while self._made:
            home = self._made[-1]
            with contextlib.suppress(OSError):
                for folder, _, _ in os.walk(home, topdown=False):
                    os.rmdir(folder)
            if not home.exists():
                self._made.pop()
                continue
            assert time.monotonic() < deadline, f"{home} stays: {(home / 'tasks').read_text()}"
            time.sleep(0.01)
