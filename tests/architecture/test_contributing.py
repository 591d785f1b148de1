"""Rules for contributions: commit subjects, hooks whose programs exist, templates that a forge can read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("slurm apply: refuse before draining if slurmd cannot be started", ""),
        ("sim, docs: name the pipe", ""),
        ("Merge branch 'x'", ""),
        ("refuse before draining", "area"),
        ("a" * 60, "area"),
        ("slurm: " + "x" * 80, "87 characters"),
        ("slurm: added a check", "imperative"),
        ("slurm: add a check.", "full stop"),
        ("", "area"),
    ],
)
def test_a_commit_subject(tmp_path: Path, subject: str, reason: str) -> None:
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nwhy\n" if subject else "")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/commit_subject.py"), str(message)],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == bool(reason)
    assert reason in done.stderr


def test_hooks_call_programs_of_the_environment() -> None:
    hooks = [hook for repo in _read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}
    for hook in hooks:
        program, *words = hook["entry"].split()
        assert (ROOT / program).exists(), f"{hook['id']}: {program} (make setup)"
        assert all((ROOT / word).exists() for word in words if word.startswith("tools/")), hook["id"]


def test_forms_ask_for_what_a_report_needs() -> None:
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        content = _read(form)
        if form.name != "config.yml":
            assert content["name"]
            assert all(part["attributes"]["label"] for part in content["body"])


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())
