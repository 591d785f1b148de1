"""The demonstrations of the Makefile end as they should: the short one in each run, the stories as long tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tools import demo_terminal

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
    assert "\x1b" not in done.stdout, "colour is for terminals"


def test_a_slow_machine_is_waited_for_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    tries = iter((False, False, True))

    def wait() -> None:
        assert next(tries)

    assert demo_terminal.told(lambda: demo_terminal.patiently(wait)) == 0
    assert capsys.readouterr().out.count("slow machine, trying longer") == 2


def test_a_story_that_goes_wrong_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def wait() -> None:
        raise AssertionError("kubectl wait vm/desk: it ended with 1")

    assert demo_terminal.told(lambda: demo_terminal.patiently(wait)) == 1
    said = capsys.readouterr()
    assert said.out.count("slow machine") == demo_terminal.TRIES - 1
    assert said.err == "\nnot as told: kubectl wait vm/desk: it ended with 1\n"


def test_commands_are_bold_on_terminals_that_want_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wanted in (True, False):
        monkeypatch.setattr("aliquot.cli.framework.color.wanted", lambda wanted=wanted: wanted)
        demo_terminal.show("kubectl get nodes")
        assert ("\x1b" in capsys.readouterr().out) == wanted


def test_the_demonstrations_need_no_more_than_their_packages() -> None:
    """``make demo-kubernetes`` installs two extras and a group, ``make demo-slurm`` nothing."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["demo"]]
    wanted += [each for extra in ("agent", "server") for each in project["project"]["optional-dependencies"][extra]]
    names = {re.split(r"[<>=\[]", each)[0].lower() for each in wanted}
    lines = (
        "import importlib.metadata as m, runpy, sys",
        "runpy.run_path(sys.argv[1], run_name='imported')",
        "found = m.packages_distributions()",
        "print(*sorted({d.lower() for n in {n.partition('.')[0] for n in sys.modules} for d in found.get(n, ())}))",
    )
    needed = {"sandbox": names, "sandbox_slurm": {"msgspec", "pyyaml", "nvidia-ml-py"}}
    for tool, may in needed.items():
        done = ran(sys.executable, "-c", "\n".join(lines), f"tools/{tool}.py")
        assert done.returncode == 0, done.stderr
        theirs = {"cffi", "grpcio-tools", "idna", "setuptools", "typing_extensions", "aliquot"}  # come with those
        assert set(done.stdout.split()) - theirs <= may


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
