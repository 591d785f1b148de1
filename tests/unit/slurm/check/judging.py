"""Files in memory, judged: what rules say about them."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from aliquot.slurm.check.api import check
from aliquot.slurm.check.finding import CheckInput, SlurmFinding
from aliquot.slurm.conf.parser import parse

ETC = "/etc/slurm"
SLURM = """\
ClusterName=bed
GresTypes=gpu
SelectType=select/cons_tres
TaskPlugin=task/cgroup,task/affinity
"""
APART = ("ADMIN_NOT_FENCED", "NO_TASK_PROLOG")
"""What nearly all files of these tests lack: rules with tests of their own."""
CGROUP = "ConstrainDevices=yes\n"
GPU = "/dev/nvidia0"


def cap(minor: int) -> str:
    """A capability node."""
    return f"/dev/nvidia-caps/nvidia-cap{minor}"


def cut(kind: str, gi: int, gpu: int = 0, node: str = "n1") -> str:
    """A right line for compute instance 0 of a GPU instance."""
    outer = 3 + 135 * gpu + 9 * gi
    files = f"/dev/nvidia{gpu},{cap(outer)},{cap(outer + 1)}"
    return f"NodeName={node} Name=gpu Type={kind} MultipleFiles={files}\n"


def given(nodes: str = "", gres: str | None = "", *, head: str = SLURM, **more: Any) -> CheckInput:
    """What a check looks at. ``nodes`` are further lines of slurm.conf."""
    texts = {"slurm.conf": head + nodes, "cgroup.conf": more.pop("cgroup", CGROUP), "gres.conf": gres}
    texts["helpers.conf"] = more.pop("helpers", None)
    found: dict[str, Any] = {
        name.partition(".")[0]: parse(f"{ETC}/{name}", lambda _, text=text: text)  # type: ignore[misc]
        for name, text in texts.items()
        if text is not None
    }
    return CheckInput(ETC, **found, **more)


def findings(*args: Any, apart: Container[str] = APART, **more: Any) -> tuple[SlurmFinding, ...]:
    """What is wrong, but for the rules in ``apart``."""
    return tuple(f for f in check(given(*args, **more)) if f.rule not in apart)


def rules(*args: Any, **more: Any) -> list[str]:
    """``error COUNT_MISMATCH slurm.conf:5`` for each finding."""
    return [
        f"{f.severity} {f.rule}" + (f" {str(f.location).removeprefix(f'{ETC}/')}" if f.location else "")
        for f in findings(*args, **more)
    ]
