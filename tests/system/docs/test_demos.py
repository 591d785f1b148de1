"""The demonstrations of the Makefile end as they should: the short one in each run, the stories as long tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import HOUSE

pytestmark = pytest.mark.slow
STORIES = {
    "kubernetes": ("tools/sandbox.py", "--story"),
    "machines": ("tools/sandbox.py", "--machines", "--story"),
    "slurm": ("tools/sandbox_slurm.py",),
}


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(words, cwd=HOUSE, env=env, capture_output=True, text=True, timeout=300, check=False)


def test_the_main_job_on_the_simulator() -> None:
    done = ran("sh", "scripts/demo.sh")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long(
    about=["tools/sandbox", "tests/system/containers/podman", "tests/system/slurm/bed", "tests/system/slurm/demanded"]
)
@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: str) -> None:
    done = ran(sys.executable, *STORIES[story])
    assert done.returncode == 0, done.stdout + done.stderr
