"""Releases of Slurm: Debian 12's, installed here, and Debian 13's in a separate folder (``make slurm-trixie``)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = (
    "slurmctld",
    "slurmd",
    "slurmrestd",
    "munged",
    "scontrol",
    "sinfo",
    "squeue",
    "srun",
    "sbatch",
    "scancel",
    "sdiag",
)
ACCOUNTING = ("sacct", "sacctmgr", "slurmdbd")
"""Programs that only tests of accounting need (``accounting.missing``)."""


@dataclass(frozen=True)
class Release:
    """A release. ``root`` is the folder that its programs see as ``/``; ``/`` for installed programs."""

    name: str
    root: str

    @property
    def chrooted(self) -> bool:
        return self.root != "/"

    @property
    def missing(self) -> str:
        """Reason why the release cannot run here, or "" if it can."""
        if os.geteuid() != 0:
            return f"Slurm {self.name}: daemons of a cluster need root"
        absent = [name for name in PROGRAMS if not shutil.which(name, path=self.path)]
        if absent:
            packages = "slurmctld slurmd slurm-client slurmrestd slurm-wlm-jwt-plugin munge"
            hint = "make slurm-trixie" if self.chrooted else f"apt-get install {packages}"
            return f"Slurm {self.name} is not here ({', '.join(absent[:3])}): {hint}"
        done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
        return f"no mount namespaces: {done.stderr.strip()}" if done.returncode else ""

    @property
    def plugins(self) -> str:
        """Folders of its NVML plugin as a value of ``PluginDir``; "" for the default folder."""
        own = trixie().parent / "plugins"
        usual = next(iter(sorted(Path("/usr/lib").glob("*/slurm-wlm"))), "")
        return "" if self.chrooted else f"{own}:{usual}"

    @property
    def blind(self) -> str:
        """Reason why its slurmd cannot detect GPUs by NVML, or "" if it can."""
        places = [Path(self.root) / "usr/lib", trixie().parent / "plugins"][:: 1 if self.chrooted else -1]
        found = next(places[0].glob("**/gpu_nvml.so"), None)
        return "" if found else f"Slurm {self.name} has no NVML plugin here: make slurm-trixie"

    @property
    def path(self) -> str:
        root = self.root.rstrip("/")
        return ":".join(f"{root}{each}" for each in ("/usr/sbin", "/usr/bin", "/sbin", "/bin"))


def trixie() -> Path:
    """Return the folder in which ``make slurm-trixie`` keeps Debian 13 between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "aliquot-test-slurm" / "trixie"


OLD = Release("22.05", "/")
NEW = Release("24.11", str(trixie()))
RELEASES = (OLD, NEW)
