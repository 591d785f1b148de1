"""The installation commands of the pages, run once from this checkout in a new environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import HOUSE


@pytest.mark.slow
def test_pip_installs_it_with_the_page(tmp_path: Path) -> None:
    # ``pip install '.[dashboard]'`` in a new environment installs the command and the page's server.
    checkout, home = tmp_path / "checkout", tmp_path / "env"
    checkout.mkdir()
    for name in ("src", "scripts", "catalog"):
        shutil.copytree(HOUSE / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, checkout)
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    line = [str(home / "bin/pip"), "install", "--quiet", ".[dashboard]"]
    done = subprocess.run(line, cwd=checkout, env=quiet, capture_output=True, text=True)
    if done.returncode and "No matching distribution" in done.stderr + done.stdout:
        pytest.skip("no package index answers here")
    assert done.returncode == 0, done.stderr
    assert (home / "share/man/man1/aliquot.1").is_file()
    env = {**quiet, "ALIQUOT_STATE_DIR": str(tmp_path / "state"), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    for words in (
        ["aliquot", "version"],
        ["aliquot", "dashboard", "--help"],
        ["python", "-c", "import aliquot.dashboard.server"],
    ):
        ran = subprocess.run(words, env=env, capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
