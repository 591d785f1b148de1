"""Similar names in errors are those of the GPUs that are there, also for files and requests of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control

from .conftest import Run

NATIVE = "version: aliquot/v1\nconfigs:\n  c:\n    - {gpus: all, mig: {1g.5gbb: 1}}\n"
MIG_PARTED = "version: v1\nmig-configs:\n  c:\n    - {devices: all, mig-enabled: true, mig-devices: {1g.5gbb: 1}}\n"
LOCAL = {"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}


@pytest.fixture(autouse=True)
def hopper(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a node ``hopper`` with one H100, and write the two files."""
    control.start(state, "h100-80gb-hbm3", "hopper")
    monkeypatch.setenv("ALIQUOT_SIM", "hopper")
    (tmp_path / "native.yaml").write_text(NATIVE)
    (tmp_path / "parted.yaml").write_text(MIG_PARTED)
    yield
    control.stop(state, "hopper")


@pytest.mark.parametrize(
    "line",
    [
        "plan -f native.yaml",
        "verify -f parted.yaml",
        "slurm apply -f native.yaml",
        "mig-parted assert -f parted.yaml",
        "plan --mig 1g.5gbb",
        "plan --gpu 0 --add 1g.5gbb",
        "explain 1g.5gbb",
        "docker run-args 1g.5gbb",
        "docker compose app=1g.5gbb",
        "docker run-args 1g.11gb --runtime docker --no-reserve --form legacy",
    ],
)
def test_similar_names_are_those_of_this_node(line: str, run: Run) -> None:
    result = run(*line.split())
    assert result.code != 0
    found = re.search(r"(?:did you mean |close: )([^?\n]+)", result.err)
    assert found, result.err
    assert set(re.split(", | or ", found.group(1))) <= LOCAL, result.err


def test_a_node_that_cannot_be_read_keeps_the_errors_of_the_file(run: Run) -> None:
    result = run("plan", "-f", "native.yaml", "--sim", "nowhere")
    assert result.code == 2
    assert "native.yaml:4:25: '1g.5gbb' is not a MIG profile name" in result.err
    assert "did you mean 1g.5gb" in result.err, "any GPU"
