"""A working day on simulated nodes: outputs, remaining files and the calls that reached the driver."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control

from .conftest import Run

ROOT = Path(__file__).resolve().parents[3]
UPDATE = "ALIQUOT_UPDATE" in os.environ
GOLDEN = ROOT / "tests/golden/day"
SPEC = importlib.util.spec_from_file_location("artefacts", ROOT / "tools/artefacts.py")
assert SPEC is not None
assert SPEC.loader is not None
artefacts = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(artefacts)


def test_the_day_ends_as_it_did_before(program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # For an intended change, run ``ALIQUOT_UPDATE=1 pytest tests/system/cli/test_day.py`` and review the diff.
    folder = tmp_path.resolve()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(folder / "state"))

    def run(words: list[str], variables: dict[str, str]) -> tuple[int, str, str]:
        monkeypatch.chdir(folder / "work")
        done = program(*words, **variables)
        return done.code, done.out, done.err

    try:
        now = dict(artefacts.collect(run, folder, host=False))
    finally:
        control.stop(str(folder / "state"))
    if UPDATE:
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for path in GOLDEN.iterdir():
            path.unlink()
        for name, text in now.items():
            (GOLDEN / name).write_text(text)
    assert now == {path.name: path.read_text() for path in GOLDEN.iterdir()}
