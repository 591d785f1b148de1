"""The demonstrations of the Makefile end as expected. The short one runs every time, the stories are long tests."""

from __future__ import annotations

import os
import re
import signal
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
PLACES = ("etc/slurm", "etc/aliquot")
STORIES = {
    "kubernetes": ("tools/sandbox.py", "--story"),
    "machines": ("tools/sandbox.py", "--machines", "--story"),
    "slurm": ("tools/sandbox_slurm.py",),
}


def ran(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        words, cwd=HOUSE, env=env, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_main_job_on_the_simulator() -> None:
    done = ran("sh", "scripts/demo.sh")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout, "colour is for terminals"


def test_a_slow_machine_is_waited_for_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    tries = iter((False, False, True))

    def wait() -> None:
        assert next(tries)

    assert demo_terminal.reported(lambda: demo_terminal.patiently(wait)) == 0
    assert capsys.readouterr().out.count("slow host, trying longer") == 2


def test_a_story_that_goes_wrong_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def wait() -> None:
        raise AssertionError("kubectl wait vm/desk: it ended with 1")

    assert demo_terminal.reported(lambda: demo_terminal.patiently(wait)) == 1
    answer = capsys.readouterr()
    assert answer.out.count("slow host") == demo_terminal.TRIES - 1
    assert answer.err == "\nfailed: kubectl wait vm/desk: it ended with 1\n"


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
        theirs = {
            "cffi",
            "grpcio-tools",
            "idna",
            "setuptools",
            "typing_extensions",
            "aliquot",
        }  # installed as dependencies
        assert set(done.stdout.split()) - theirs <= may


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a folder with a short name, so that socket paths fit."""
    with tempfile.TemporaryDirectory(prefix="aqd-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.long(about=["tools/sandbox"])
@pytest.mark.parametrize("words", [(), ("--story",), ("--machines",)], ids=["kept", "story", "machines"])
def test_a_sandbox_that_is_ended_leaves_no_process(words: tuple[str, ...], short: Path) -> None:
    # It is ended in the middle, as ``timeout`` does: its simulator's servers, agents and API server must end with it.
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
    """Return the processes whose arguments or environment name a folder below this one."""
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


@pytest.mark.long(about=["tools/sandbox_slurm", "tests/system/slurm/bed", "tests/system/slurm/demanded"])
def test_a_shell_on_a_private_slurm() -> None:
    lines = (
        "aliquot slurm check",
        "sudo aliquot slurm apply --gpu 0 --mig '3g.20gb*2'",
        "sbatch train.sh",
        "aliquot slurm demand -f /etc/aliquot/slurm.yaml",
        "pwd",
        "sinfo -N -h -n n1 -o %G",
        "exit 7",
    )
    before = [sorted(Path("/").glob(f"{place}/*")) for place in PLACES]
    done = ran(sys.executable, "tools/sandbox_slurm.py", "--shell", stdin="\n".join(lines) + "\n")
    assert done.returncode == 7, done.stdout + done.stderr
    *_, folder, last = done.stdout.splitlines()
    assert last == "gpu:a100_3g.20gb:2,gpu:a100_7g.40gb:1"
    assert "Submitted batch job" in done.stdout
    assert "no pending job waits for GPUs" in done.stdout
    assert "\n/etc/slurm/slurm.conf:" in done.stdout, "its files have the names of the how-to"
    assert "wrote /etc/slurm/gres.conf" in done.stderr
    assert "jobs of n1 can open" not in done.stderr, "its slurm.conf has what keeps jobs from the capabilities"
    assert not Path(folder).parent.exists()
    assert [sorted(Path("/").glob(f"{place}/*")) for place in PLACES] == before, "they exist in that shell only"


@pytest.mark.long(about=["tools/sandbox_slurm", "tests/system/slurm/slotted"])
def test_a_shell_on_a_node_of_slurm_conf_that_becomes_a_slot_board() -> None:
    lines = ("aliquot slurm apply --slots", "sinfo -N -h -n n1 -o %G", "exit 7")
    done = ran(sys.executable, "tools/sandbox_slurm.py", "--shell", "--boards", stdin="\n".join(lines) + "\n")
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "gpu:a100_7g.40gb:2,gpu:pad:13"


@pytest.mark.long(about=["tools/sandbox_slurm"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_private_slurm_whose_terminal_is_closed_leaves_no_folder(number: signal.Signals, short: Path) -> None:
    words = [sys.executable, "tools/sandbox_slurm.py", "--shell"]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    box = subprocess.Popen(
        words, cwd=HOUSE, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert box.stdin
    assert box.stdout
    box.stdin.write("pwd\n")
    box.stdin.flush()
    folder = next(Path(line.strip()).parent for line in box.stdout if line.startswith("/tmp/"))
    assert folder.exists()
    box.send_signal(number)
    assert box.wait(60) == 128 + number
    box.communicate()
    assert not folder.exists()
    assert not of_folder(folder)
