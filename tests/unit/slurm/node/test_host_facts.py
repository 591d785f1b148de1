"""Detection of the slurmd on this host."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.foundation import driver_calls, signals
from aliquot.slurm.node.host_facts import slurmd_version


@pytest.fixture
def slurmd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the slurmd that a command finds."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "slurmd"


def write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("body", "version"),
    [("echo slurm 24.11.5", "24.11.5"), ("echo slurm 24.11.5; exit 1", ""), ("echo what", ""), ("exit 0", "")],
)
def test_what_slurmd_says_is_its_version(slurmd: Path, body: str, version: str) -> None:
    write(slurmd, body)
    assert slurmd_version() == version


def test_where_there_is_none(slurmd: Path) -> None:
    assert slurmd_version() == ""


def test_a_slurmd_that_hangs_is_no_driver_call(slurmd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from aliquot.foundation import bounded_process

    seen: list[tuple[object, bool]] = []

    def late(words: object, seconds: float, **more: object) -> bounded_process.ProcessResult:
        seen.append((driver_calls.oldest(), signals.changing()))
        raise bounded_process.ProcessTimeoutError(seconds)

    monkeypatch.setattr(bounded_process, "run", late)
    assert slurmd_version() == ""
    assert seen == [(None, False)]
