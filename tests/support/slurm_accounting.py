"""A Slurm cluster in memory with accounting, and a ``sacct`` that prints lines as the real one does."""

from __future__ import annotations

from pathlib import Path

from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition


class Cluster:
    """A node with MIG devices. ``holding`` are the jobs that slurmctld has."""

    def __init__(self) -> None:
        self.settings_found = {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageTRES": "cpu,mem,gres/gpu,gres/gpu:a100_1g.5gb,gres/gpu:a100_3g.20gb",
        }
        self.holding: tuple[int, ...] = ()

    def settings(self) -> dict[str, str]:
        return self.settings_found

    def nodes(self) -> tuple[SlurmNode, ...]:
        devices = (Gres("gpu", "a100_1g.5gb", 7), Gres("gpu", "a100_3g.20gb", 2))
        return (SlurmNode("n1", frozenset({"IDLE"}), gres=devices, partitions=("main",)),)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return (SlurmPartition("main"),)

    def jobs(self, *, holding: bool) -> tuple[SlurmJob, ...]:
        assert holding
        return tuple(SlurmJob(each, "RUNNING") for each in self.holding)


def line(number: int, state: str, start: int, end: int, *, kind: str, count: int = 1, queued: int = 0) -> str:
    """Return a line of sacct for a job with a time limit of four hours. 0 is an unknown time."""
    tres = f"billing=1,cpu=1,gres/gpu:{kind}={count},gres/gpu={count},node=1"
    times = "|".join(str(each) if each else "Unknown" for each in (queued or start, queued or start, start, end))
    return f"{number}|{state}|{times}|240|{tres}|{tres if start else ''}"


def sacct(folder: Path, *lines: str) -> None:
    """Put a ``sacct`` into a folder that prints these lines for jobs, and those of ``steps`` for steps."""
    folder.mkdir(exist_ok=True)
    (folder / "jobs").write_text("".join(f"{each}\n" for each in lines))
    steps(folder)
    script = f'case "$*" in *--allocations*) exec cat {folder}/jobs ;; esac\nexec cat {folder}/steps\n'
    (folder / "sacct").write_text(f"#!/bin/sh\n{script}")
    (folder / "sacct").chmod(0o755)


def steps(folder: Path, *lines: str) -> None:
    """Let the ``sacct`` of a folder print these lines for steps."""
    (folder / "steps").write_text("".join(f"{each}\n" for each in lines))
