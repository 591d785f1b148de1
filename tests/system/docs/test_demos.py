"""The demonstrations of the Makefile end as they should: the short one in each run, the stories as long tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
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


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="aqd-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.long(about=["tools/sandbox"])
@pytest.mark.parametrize("words", [(), ("--story",), ("--machines",)], ids=["kept", "story", "machines"])
def test_a_sandbox_that_is_ended_leaves_no_process(words: tuple[str, ...], short: Path) -> None:
    """As ``timeout`` does, in the middle: its simulator's servers, agents and API server end with it."""
    folder = short
    box = subprocess.Popen(
        [sys.executable, "tools/sandbox.py", *words],
        cwd=HOUSE,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not list(folder.glob("aq-*/**/nvml.sock")):
            assert time.monotonic() < deadline, "waited 60 s for the simulator"
            time.sleep(0.1)
        box.terminate()
        box.wait(60)
    finally:
        box.kill()
    deadline = time.monotonic() + 10
    while (left := of_folder(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)  # the fork server ends with its last client
    assert not left, [command(pid) for pid in left]


def of_folder(folder: Path) -> list[int]:
    """The processes whose arguments or environment name a folder below this one."""
    mark = str(folder).encode()
    return [pid for pid in (int(p.name) for p in Path("/proc").glob("[0-9]*")) if mark in command(pid) + around(pid)]


def command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def around(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


@pytest.mark.long(
    about=["tools/sandbox", "tests/system/containers/podman", "tests/system/slurm/bed", "tests/system/slurm/demanded"]
)
@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: str) -> None:
    done = ran(sys.executable, *STORIES[story])
    assert done.returncode == 0, done.stdout + done.stderr
