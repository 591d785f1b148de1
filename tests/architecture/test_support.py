"""Machinery of the test suite: fork servers, the end of processes with their run, measurements, and recordings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from support import forkserver, selection
from support.processes import until

ROOT = Path(__file__).resolve().parents[2]
CONTAINED = [sys.executable, str(ROOT / "tools/contained.py")]
ALIQUOT = [sys.executable, "-m", "aliquot"]


def marked(mark: str) -> list[str]:
    """Return the command lines of all processes that were started with ``MARK=mark`` in their environment."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and f"MARK={mark}".encode() in (each / "environ").read_bytes().split(b"\0"):
                found.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def forked() -> set[str]:
    """Return the pids of this process's fork servers and of the processes that they forked."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found |= {each.parent.name} if forkserver.python().encode() in each.read_bytes() else set()
        except OSError:
            continue
    return found


RUNNER = """
import os, subprocess, sys, time
from pathlib import Path
from aliquot.sim import lifecycle as control
from support import forkserver
from support.standin import Standin
folder = sys.argv[1]
if sys.argv[2] == "forked":
    control.launch = forkserver.launch
control.start(folder, "a100-sxm4-40gb", "n")
standin = Standin().start()
words = [sys.executable, "-m", "aliquot", "show", "--watch=0.1", "--sim", "n"]
env = {**os.environ, "ALIQUOT_STATE_DIR": folder}
forkserver.Popen(words, env=env, stdout=subprocess.DEVNULL)
subprocess.Popen(["sh", "-c", "setsid sleep 600 & exit"])
Path(folder, "ready").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("way", ["forked", "fresh"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_run_that_is_killed(tmp_path: Path, number: int, way: str) -> None:
    # Covers a simulator's server, a command that watches, and a daemon that has left its session.
    mark = f"{tmp_path}"
    env = {**os.environ, "MARK": mark, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    runner = subprocess.Popen([*CONTAINED, sys.executable, "-c", RUNNER, str(tmp_path), way], env=env)
    try:
        until((tmp_path / "ready").exists, "the run did not begin")
        until(lambda: any("sleep 600" in line for line in marked(mark)), "the daemon did not start")
        assert len(marked(mark)) >= 5
    finally:
        runner.send_signal(number)
        runner.wait()
    until(lambda: not marked(mark), f"still there: {marked(mark)}")


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", 137), ("exit 0", 0)])
def test_a_contained_command_ends_as_it_would(script: str, code: int) -> None:
    assert subprocess.run([*CONTAINED, "sh", "-c", script]).returncode == code


@pytest.mark.parametrize(("most", "code", "verdict"), [("0.7", 1, "FAILED"), ("600", 0, "within")])
def test_a_run_fails_above_its_budget_orphans_included(most: str, code: int, verdict: str) -> None:
    busy = (
        "import os, time\npid = os.fork()\nif pid:\n os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n os._exit(0)\n"
        "while time.process_time() < 1: 1"
    )
    words = [*CONTAINED, "--budget", f"500,600,{most}", sys.executable, "-c", busy]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stdout.startswith("budget: ")
    assert verdict in done.stdout


class TestAForkedCommand:
    def test_is_a_child_with_the_streams_and_the_exit_code_of_a_process(self, tmp_path: Path) -> None:
        env = {**os.environ, "ALIQUOT_STATE_DIR": str(tmp_path / "none"), "NO_COLOR": "1"}
        words = [*ALIQUOT, "show", "--sim", "nowhere"]
        forked = forkserver.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = forked.communicate()
        fresh = subprocess.run(words, env=env, capture_output=True, text=True)
        assert forked.forked
        assert (forked.returncode, out, err) == (fresh.returncode, fresh.stdout, fresh.stderr)
        assert forked.returncode == 20

    def test_reads_stdin_and_works_in_the_given_folder(self, tmp_path: Path) -> None:
        (tmp_path / "w.yaml").write_text("version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false}]}\n")
        for words, text in ((["w.yaml"], None), (["-"], (tmp_path / "w.yaml").read_text())):
            words = [*ALIQUOT, "mig-parted", "assert", "--valid-config", "-c", "a", "-f", *words]
            done = forkserver.run(words, input=text, capture_output=True, text=True, cwd=tmp_path)
            same = subprocess.run(words, input=text, capture_output=True, text=True, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (same.returncode, same.stderr)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    def test_hears_signals(self, tmp_path: Path, number: int) -> None:
        words = [*ALIQUOT, "show", "--watch=1", "--sim", "n"]
        env = {**os.environ, "ALIQUOT_STATE_DIR": str(tmp_path)}
        child = forkserver.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child.send_signal(number)
        found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert found is not None
        assert found.si_status == number
        child.kill()
        assert child.wait() == -signal.SIGKILL

    @pytest.mark.parametrize(
        ("words", "env"),
        [
            ([sys.executable, "-c", "pass"], {}),
            ([sys.executable, "-m", "json.tool"], {}),
            (["/usr/bin/env"], {}),
            ([*ALIQUOT, "show"], {"LD_LIBRARY_PATH": "/elsewhere"}),
            ([*ALIQUOT, "show"], {"LD_PRELOAD": "/elsewhere.so"}),
            ([*ALIQUOT, "show"], {"PYTHONPATH": "/elsewhere"}),
            ([*ALIQUOT, "show"], {"PYTHONWARNINGS": "error"}),
        ],
    )
    def test_is_started_afresh_where_a_fork_would_differ(self, words: list[str], env: dict[str, str]) -> None:
        assert not forkserver.forkable(words, {**os.environ, **env})

    @pytest.mark.parametrize("fresh", [False, True])
    def test_is_in_the_given_mounts_forked_or_not(self, tmp_path: Path, fresh: bool) -> None:
        if os.geteuid() != 0:
            pytest.skip("containers need root: unshare --mount")
        script = 'mount -t tmpfs none "$1" && echo broken >"$1/w.yaml" && echo ready && exec cat'
        words = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as place:
            assert place.stdout is not None
            assert place.stdout.readline() == "ready\n"
            plan = [*ALIQUOT, "plan", "-f", str(tmp_path / "w.yaml"), "-c", "a"]
            options = {"umask": 0o77} if fresh else {}
            child = forkserver.Popen(plan, mounts_of=place.pid, stderr=subprocess.PIPE, text=True, **options)
            _, err = child.communicate()
            assert place.stdin is not None
            place.stdin.close()
        assert child.forked is not fresh
        assert (child.returncode, "the text 'broken'" in err) == (2, True), err

    def test_forks_the_simulator_server_that_it_starts(self, tmp_path: Path) -> None:
        env, before = {**os.environ, "ALIQUOT_STATE_DIR": str(tmp_path)}, forked()
        try:
            forkserver.run([*ALIQUOT, "sim", "start", "a100-sxm4-40gb"], env=env, check=True, capture_output=True)
            files = [os.readlink(each) for pid in forked() - before for each in Path(f"/proc/{pid}/fd").iterdir()]
            assert any(each.startswith(simulated_nodes(str(tmp_path))) for each in files), files
        finally:
            control.stop(str(tmp_path))


class TestTheDraw:
    def test_is_a_tenth_and_ten_commits_in_a_row_draw_each_test_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn = []
        for number in range(95, 105):
            monkeypatch.setattr(selection, "seed", lambda seed=f"{number}-{number:x}": seed)
            drawn.append({n for n in range(5000) if selection.drawn(f"test[{n}]")})
        assert all(400 < len(each) < 600 for each in drawn)
        assert sum(map(len, drawn)) == len(set().union(*drawn)) == 5000

    def test_has_all_of_a_full_run_and_what_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selection, "drawn", lambda name: False)
        monkeypatch.setattr(selection, "changed", lambda: frozenset({"src/aliquot/py.typed"}))
        monkeypatch.setattr(selection, "everything", lambda: False)
        tests = {"about": ["tests/", "src/aliquot/p"], "elsewhere": ["tests/"], "any": []}
        assert selection.included(tests) == {"about"}
        with pytest.raises(pytest.UsageError, match="t is about src/gone, but"):
            selection.included({"t": ["src/gone"]})
        monkeypatch.setattr(selection, "everything", lambda: True)
        assert selection.included(tests) == set(tests)

    def test_has_others_of_what_a_wide_change_calls_for_after_each_commit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(selection, "drawn", lambda name: name == "turn")
        monkeypatch.setattr(selection, "changed", lambda: frozenset({"src/aliquot/py.typed"}))
        monkeypatch.setattr(selection, "everything", lambda: False)
        tests = {name: ["src/aliquot/"] for name in ("turn", *map(str, range(3 * selection.CALLED)))}
        chosen = []
        for number in range(2):
            monkeypatch.setattr(selection, "seed", lambda seed=f"{number}-0": seed)
            chosen.append(selection.included(tests))
        assert all(len(each) == selection.CALLED + 1 and "turn" in each for each in chosen)
        assert chosen[0] != chosen[1]


PROJECT = """
from pathlib import Path
from support import layers
layers.TESTS = Path(__file__).parent
pytest_plugins = ["support.distribution"]
"""
TRACE = """
import os, time, pytest
@pytest.mark.parametrize("nth", range(4))
def test(nth):
    time.sleep(0.2)
    with open({log!r}, "a") as log:
        print({name!r}, os.environ["PYTEST_XDIST_WORKER"], file=log)
"""


@pytest.mark.slow
def test_a_file_stays_with_one_worker_and_the_first_takes_those_that_compute(tmp_path: Path) -> None:
    log = tmp_path / "log"
    names = ["crash/test_a", "slurm/test_b", "unit/test_c", "slurm/test_d"]
    for name in names:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TRACE.format(log=str(log), name=name))
    (tmp_path / "conftest.py").write_text(f"import sys; sys.path.append({str(ROOT / 'tests')!r})\n{PROJECT}")
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run([*words, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = log.read_text().splitlines()
    assert len(ran) == 16
    assert len(set(ran)) == len(names), "a file stays with one worker"
    assert {"crash/test_a gw0", "slurm/test_b gw1"} <= set(ran)


class TestTheLauncher:
    """The launcher that scripts start instead of the interpreter."""

    WATCH = ("-m", "aliquot", "show", "--watch=0.2", "--sim", "n")

    @pytest.fixture
    def env(self, tmp_path: Path) -> Iterator[dict[str, str]]:
        state = str(tmp_path / "state")
        control.start(state, "a100-sxm4-40gb", "n")
        yield {**os.environ, "ALIQUOT_STATE_DIR": state, "NO_COLOR": "1"}
        control.stop(state)

    @pytest.mark.parametrize("words", [["show", "--sim", "nowhere"], ["--version"], ["plan", "--gpu", "0", "--bad"]])
    def test_gives_what_the_interpreter_gives(self, env: dict[str, str], words: list[str]) -> None:
        asked, fresh = (
            subprocess.run([python, "-m", "aliquot", *words], env=env, capture_output=True, text=True)
            for python in (forkserver.python(), sys.executable)
        )
        assert (asked.returncode, asked.stdout, asked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)

    def test_leaves_other_programs_to_the_interpreter(self) -> None:
        done = subprocess.run([forkserver.python(), "-c", "print(6 * 7)"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "42\n")

    def test_starts_the_driver_s_programs(self, env: dict[str, str]) -> None:
        program = Path(control.folder(env["ALIQUOT_STATE_DIR"], "n"), "driver/usr/bin/nvidia-smi")
        words = shlex.split(program.read_text().splitlines()[-1].removeprefix("exec "))[:-1]
        outputs = [
            subprocess.run(each, env=env, capture_output=True, text=True)
            for each in ([str(program), "-L"], [str(program), "-bad"], [str(program), "mig", "-dgi"])
        ]
        fresh = {**env, "PYTHONPATH": forkserver.SOURCE}
        same = [
            subprocess.run([sys.executable, *words[1:], *each], env=fresh, capture_output=True, text=True)
            for each in (["-L"], ["-bad"], ["mig", "-dgi"])
        ]
        assert [(o.returncode, o.stdout, o.stderr) for o in outputs] == [
            (o.returncode, o.stdout, o.stderr) for o in same
        ]
        assert outputs[0].stdout.startswith("GPU 0: NVIDIA A100")
        assert outputs[1].returncode != 0

    def test_that_stops_in_its_request_holds_up_no_other(self, env: dict[str, str]) -> None:
        with socket.socket(socket.AF_UNIX) as stopped, socket.socket(socket.AF_UNIX) as gone:
            for each in (stopped, gone):
                each.connect(str(Path(forkserver.python()).with_name("lean")))
                socket.send_fds(each, [struct.pack("=i", 1000)], [0, 1, 2])
                each.sendall(b"half of it")
            gone.close()
            words = [forkserver.python(), "-m", "aliquot", "show", "--sim", "n"]
            assert subprocess.run(words, env=env, capture_output=True, timeout=20).returncode == 0

    @pytest.mark.parametrize(
        ("answer", "code"), [(b"", 70), (struct.pack("=i", -1), 0), (struct.pack("=i", 3 << 8), 3)]
    )
    def test_lost(self, tmp_path: Path, answer: bytes, code: int) -> None:
        # A program that the server refused starts in an interpreter. If the server ended, the program may have run: it
        # is not run again.
        program = shutil.copy(forkserver.python(), tmp_path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "lean"))
            listener.listen()
            words = [program, "-m", "aliquot", "--version"]
            with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as launched:
                connection, _ = listener.accept()
                head, fds, _, _ = socket.recv_fds(connection, 4, 3)
                connection.recv(struct.unpack("=i", head)[0], socket.MSG_WAITALL)
                connection.sendall(answer)
                for each in (connection.detach(), *fds):
                    os.close(each)
                out, _ = launched.communicate(timeout=20)
        assert (launched.returncode, bool(out)) == (code, code == 0)

    def test_is_in_the_mounts_of_who_started_it(self, tmp_path: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("containers need root: unshare --mount")
        script = 'mount -t tmpfs none "$1" && echo broken >"$1/w.yaml" && shift && exec "$@"'
        words = [forkserver.python(), "-m", "aliquot", "plan", "-f", str(tmp_path / "w.yaml"), "-c", "a"]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), *words], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "w.yaml" in done.stderr
        assert not (tmp_path / "w.yaml").exists()

    def test_has_the_limits_of_who_started_it(self, env: dict[str, str]) -> None:
        before = forked()
        words = ["prlimit", "--nofile=300", forkserver.python(), *self.WATCH]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert "GPU" in watch.stdout.readline()
            limits = [Path(f"/proc/{pid}/limits").read_text() for pid in forked() - before]
            watch.terminate()
        assert any(re.search(r"Max open files +300 +300", each) for each in limits), limits

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_passes_signals_on(self, env: dict[str, str], number: int) -> None:
        ends = []
        for python in (forkserver.python(), sys.executable):
            with subprocess.Popen([python, *self.WATCH], env=env, stdout=subprocess.PIPE, text=True) as watch:
                assert watch.stdout is not None
                assert "GPU" in watch.stdout.readline()
                watch.send_signal(number)
                ends.append(watch.wait(20))
        assert ends[0] == ends[1]

    def test_takes_its_program_along_when_it_is_killed(self, env: dict[str, str]) -> None:
        before = forked()
        with subprocess.Popen([forkserver.python(), *self.WATCH], env=env, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            assert "GPU" in watch.stdout.readline()
            assert forked() - before
            watch.kill()
        until(lambda: not forked() - before, "the program goes on")


@pytest.mark.slow
def test_a_run_in_the_background_can_be_interrupted() -> None:
    # A shell script starts background commands with SIGINT ignored, which made 34 tests fail that interrupt a command.
    one = "unit/hardware/kernel/test_kernel_tools.py::test_an_interrupt_from_the_keyboard_waits_for_its_end"
    words = shlex.join([sys.executable, "-m", "pytest", "-n", "0", f"tests/{one}"])
    done = subprocess.run(["sh", "-c", f"trap '' INT; exec {words}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
