"""Checks of files in memory: the findings of the rules."""

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
"""Rules that nearly all files of these tests break. They have their own tests."""
CGROUP = "ConstrainDevices=yes\n"
GPU = "/dev/nvidia0"


def cap(minor: int) -> str:
    """Return the path of a capability node."""
    return f"/dev/nvidia-caps/nvidia-cap{minor}"


def cut(kind: str, gi: int, gpu: int = 0, node: str = "n1") -> str:
    """Return a correct line for compute instance 0 of a GPU instance."""
    outer = 3 + 135 * gpu + 9 * gi
    files = f"/dev/nvidia{gpu},{cap(outer)},{cap(outer + 1)}"
    return f"NodeName={node} Name=gpu Type={kind} MultipleFiles={files}\n"


def given(nodes: str = "", gres: str | None = "", *, head: str = SLURM, **more: Any) -> CheckInput:
    """Build the input of a check. ``nodes`` are further lines of slurm.conf."""
    texts = {"slurm.conf": head + nodes, "cgroup.conf": more.pop("cgroup", CGROUP), "gres.conf": gres}
    texts["helpers.conf"] = more.pop("helpers", None)
    found: dict[str, Any] = {
        name.partition(".")[0]: parse(f"{ETC}/{name}", lambda _, text=text: text)  # type: ignore[misc]
        for name, text in texts.items()
        if text is not None
    }
    return CheckInput(ETC, **found, **more)


def findings(*args: Any, apart: Container[str] = APART, **more: Any) -> tuple[SlurmFinding, ...]:
    """Return the findings, except those of the rules in ``apart``."""
    return tuple(f for f in check(given(*args, **more)) if f.rule not in apart)


def rules(*args: Any, **more: Any) -> list[str]:
    """Return a text such as ``error COUNT_MISMATCH slurm.conf:5`` for each finding."""
    return [
        f"{f.severity} {f.rule}" + (f" {str(f.location).removeprefix(f'{ETC}/')}" if f.location else "")
        for f in findings(*args, **more)
    ]
