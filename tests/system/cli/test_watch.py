"""``aliquot show --watch``: on a real pty, as lines and as documents, with errors and with concurrent changes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from aliquot.cli import command_table as commands
from aliquot.cli.framework import parser as parse
from aliquot.cli.framework import screen
from aliquot.cli.watch import screen_output as watchframe
from aliquot.cli.watch.child_process import WatchFailure
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.engine.ports import JournalEntry, JournalKind
from aliquot.core.engine.recorded_change import encode_change, record_change
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.errors import AliquotError
from aliquot.hardware.state.current_run import CurrentRun, read_current_run
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from support import forkserver
from support.terminal import Played, Terminal

from .conftest import SOURCE, Run, Sim

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ALIQUOT_GOLDEN") == "write"
_CLOCK = re.compile(r"\b\d\d:\d\d:\d\d\b")

Play = Callable[..., Played]


@pytest.fixture
def play() -> Iterator[Play]:
    """Return a function that starts programs on ptys and ends them with the test."""
    started: list[Played] = []

    def start(*words: str, columns: int = 100, rows: int = 30, shell: str = "", **env: str) -> Played:
        started.append(Played(*words, columns=columns, rows=rows, shell=shell, environment=env))
        return started[-1]

    yield start
    for each in started:
        each.close()


class Log:
    """A watching program whose stdout is not a terminal."""

    def __init__(self, path: Path, *words: str) -> None:
        self.path = path
        env = {**os.environ, "PYTHONPATH": SOURCE}
        with path.open("w") as out:
            self.process = forkserver.Popen(
                [sys.executable, "-m", "aliquot", *words], stdout=out, stderr=subprocess.PIPE, env=env
            )

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def until(self, text: str, seconds: float = 60.0) -> list[str]:
        deadline = time.monotonic() + seconds
        while text not in self.path.read_text():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, self.lines()
            time.sleep(0.02)
        return self.lines()

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    started: list[Log] = []

    def start(*words: str) -> Log:
        started.append(Log(tmp_path / f"log{len(started)}", *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def golden(name: str, lines: list[str]) -> None:
    text = _CLOCK.sub("hh:mm:ss", "\n".join(lines)) + "\n"
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()


# -- on a terminal


def test_a_terminal_shows_one_picture_in_place(a100: Sim, play: Play) -> None:
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb", 0)
    shown = play("show", "--watch=0.2", columns=100, rows=16)
    shown.shows("1g.5gb at 0:1")
    assert shown.terminal.modes["1049"]
    assert not shown.terminal.modes["25"]
    assert not shown.echoes()
    golden("watch_first", shown.terminal.lines)
    a100.node.create(0, "3g.20gb", 4)
    shown.shows("created 3g.20gb at 4:4")
    golden("watch_changed", shown.terminal.lines)
    shown.type("\x03")
    assert shown.ended() == 0
    assert shown.terminal.lines == [], "the shell's screen is as it was"
    assert shown.terminal.modes == {"1049": False, "25": True, "7": True, "2026": False}
    assert shown.echoes()


def test_nothing_is_painted_while_nothing_changes(a100: Sim, play: Play) -> None:
    shown = play("show", "--watch=0.1", columns=100, rows=20)
    shown.shows("verdict:")
    deadline = time.monotonic() + 20
    observations = len(a100.node.calls())
    while len(a100.node.calls()) < observations + 30 and time.monotonic() < deadline:
        shown.read()
    # The clock draws a frame every second.
    assert shown.terminal.painted < 30
    assert shown.raw.count("\x1b[2J") == 1


def test_a_small_terminal_can_be_moved_over(dgx: Sim, play: Play) -> None:
    shown = play("show", "--watch=0.2", columns=60, rows=12)
    shown.shows("-- lines 1 to ")
    assert "GPU 0" in shown.terminal.text
    shown.type("G")
    shown.shows("GPU 7")
    assert "verdict:" in shown.terminal.text
    shown.type("\x1b[5~")
    shown.until(lambda t: "verdict:" not in t.text)
    shown.type("g")
    shown.shows("GPU 0")
    assert all(len(line) <= 60 for line in shown.terminal.lines)
    shown.resize(120, 60)
    shown.until(lambda t: "-- lines" not in t.text and "GPU 0" in t.text and "GPU 7" in t.text)
    shown.type("q")
    assert shown.ended() == 0


@pytest.mark.parametrize("columns", [40, 60, 66])
def test_a_narrow_terminal_shows_every_slice_below_its_number(columns: int, a100: Sim, play: Play) -> None:
    a100.node.set_mode(0, True)
    for start in (0, 1):
        a100.node.create(0, "1g.5gb", start)
    a100.node.create(0, "3g.20gb", 4)
    a100.node.hold(0, 7, pid=8812)
    shown = play("show", "--watch=0.2", columns=columns, rows=40)
    shown.shows("verdict:")
    lines = [line.replace(" ", "") for line in shown.terminal.lines]
    (numbers,), (letters,) = (
        [n for n, line in enumerate(lines) if line.endswith(end)] for end in ("01234567", "ab..cccc")
    )
    assert shown.terminal.lines[numbers].index("0 1 2 3") == shown.terminal.lines[letters].index("a b . . c")


def test_a_full_line_keeps_its_last_character() -> None:
    # The terminal's cursor stays on the last character of a full line, so erasing from there would delete it.
    terminal = Terminal(10, 2)
    terminal.feed("0123456789\x1b[K")
    assert terminal.lines == ["012345678"]


@pytest.mark.parametrize("columns", range(24, 70))
def test_what_is_wrapped_is_whole(columns: int) -> None:
    number, letter = " ".join(map(str, range(12))), " ".join("\x1b[33ma\x1b[0m" if n < 6 else "." for n in range(12))
    line = "GPU 0  0000:01:00.0  A100-SXM4-40GB  memory slice  ", number
    row = "  now  3g.20gb:1,1g.5gb:2  (a held)                ", letter
    for written in (line, row):
        parts, whole = watchframe.wrapped(written, columns), "".join(written)
        assert " ".join(parts).split() == whole.split()
        if columns >= 35:
            assert all(len(re.sub(r"\x1b\[\d+m", "", part)) <= columns for part in parts)
            assert parts[-1].split()[-12:] == whole.split()[-12:]


def test_a_line_break_in_a_name_starts_a_new_row() -> None:
    state = watchframe.after(watchframe.ScreenState(2.0), (("  a  ", "idle"), ("  b  ", "x\ny")), (), 1.0, first=True)
    assert state.body == (("  a  ", "idle"), ("  b  x",), ("y",))


def test_failure_is_shown_with_its_age_and_looking_goes_on(state: str, play: Play) -> None:
    control.start(state, "a100-sxm4-40gb", "gone")
    shown = play("show", "--watch=0.2", "--sim", "gone", rows=20)
    shown.shows("MIG disabled")
    control.stop(state, "gone")
    shown.shows("STALE, ")
    assert "no simulated node 'gone'" in shown.terminal.text
    assert "MIG disabled" in shown.terminal.text
    shown.shows("STALE, 2 s old")
    control.start(state, "a100-sxm4-40gb*2", "gone")
    shown.until(lambda t: "STALE" not in t.text)
    shown.shows("GPU 1  0000:02:00.0  A100-SXM4-40GB: appeared")
    control.stop(state, "gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_order_to_end_gives_the_terminal_back(number: signal.Signals, a100: Sim, play: Play) -> None:
    shown = play("show", "--watch=0.2")
    shown.shows("verdict:")
    shown.process.send_signal(number)
    assert shown.ended() == 128 + number
    assert not shown.terminal.modes["1049"]
    assert shown.terminal.modes["25"]
    assert shown.echoes()


def test_stopped_and_continued(a100: Sim, play: Play) -> None:
    # Ctrl-Z under a shell with job control: meanwhile the terminal belongs to the shell.
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    shown = play("show", "--watch=0.2", shell=f"{bash} -c 'set -m; \"$@\"; echo stopped; read _; fg; echo over $?' -")
    shown.shows("verdict:")
    shown.type("\x1a")
    terminal = shown.until(lambda t: t.lines[-1:] == ["stopped"])
    assert not terminal.modes["1049"]
    assert terminal.modes["25"]
    shown.until(lambda _: shown.echoes())
    shown.type("\n")
    shown.until(lambda t: t.modes["1049"] and "verdict:" in t.text)
    shown.type("q")
    shown.shows("over 0")


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_cannot_be_painted_gets_lines(environment: dict[str, str], a100: Sim, play: Play) -> None:
    shown = play("show", "--watch=0.2", **environment)
    shown.shows("1 GPU; GPU 0: MIG disabled")
    a100.node.set_mode(0, True)
    shown.shows("MIG enabled")
    assert "\x1b" not in shown.raw
    shown.type("\x03")
    assert shown.ended() == 0


def test_names_that_others_chose_are_no_orders(a100: Sim, play: Play) -> None:
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb", 0)
    shown = play("show", "--watch=0.2")
    shown.shows("idle")
    pid = subprocess.Popen(["/bin/sleep", "600"])
    try:
        a100.node.hold(0, 7, pid=pid.pid, name="\x1b[2Jall is well\x07")
        shown.shows("all is well")
    finally:
        pid.kill()
        pid.wait()


def test_a_name_that_others_chose_is_no_line(a100: Sim, run: Run) -> None:
    # Root reads the name on a terminal and in the log of a watch.
    a100.node.set_mode(0, True)
    gi = a100.node.create(0, "1g.5gb", 0)
    name = "a\u2028blocked[LOCKED]: reboot\x1b[2J"
    a100.node.hold(0, gi, name=name)
    for words in (["show"], ["plan", "--gpu", "0", "--mig", "disabled"], ["apply", "--gpu", "0", "--mig", "disabled"]):
        answer = run(*words)
        assert "blocked[LOCKED]: reboot" in answer.out + answer.err
        assert not [line for line in (answer.out + answer.err).splitlines() if line.startswith("blocked[L")]
    (instance,) = run("show", "-o", "json").document["gpus"][0]["instances"]
    assert instance["holders"][0]["name"] == name, "programs get it as it is"


# -- not on a terminal


def test_lines_for_a_log(a100: Sim, log: Callable[..., Log]) -> None:
    watched = log("show", "--watch=0.1")
    (first,) = watched.until("1 GPU; GPU 0: MIG disabled")
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d  one  1 GPU", first)
    a100.node.set_mode(0, True)
    watched.until("GPU 0 0000:01:00.0: MIG enabled")
    a100.node.create(0, "1g.5gb", 0)
    lines = watched.until("created 1g.5gb at 0:1")
    assert len(lines) == 3
    assert watched.end() == 0
    assert watched.lines() == lines


def test_documents_for_programs(a100: Sim, log: Callable[..., Log]) -> None:
    watched = log("show", "--watch=0.1", "-o", "json")
    watched.until('"event":"start"')
    a100.node.set_mode(0, True)
    watched.until('"event":"change"')
    assert watched.end() == 0
    first, second = (msgspec.json.decode(line) for line in watched.lines())
    assert (first["kind"], first["gpus"][0]["mig"]["current"]) == ("Inventory", "disabled")
    assert (second["kind"], second["gpus"][0]["mig"]["current"]) == ("Inventory", "enabled")
    assert second["watch"]["changes"] == ["GPU 0 0000:01:00.0: MIG enabled"]


def test_failure_in_a_log(state: str, log: Callable[..., Log]) -> None:
    control.start(state, "a100-sxm4-40gb", "away")
    text, plain = log("show", "--watch=0.1", "--sim", "away"), log("show", "--watch=0.1", "--sim", "away", "-ojson")
    text.until("1 GPU")
    plain.until('"event":"start"')
    control.stop(state, "away")
    text.until("error[NO_SUCH_NODE]: no simulated node 'away'")
    plain.until('"event":"trouble"')
    control.start(state, "a100-sxm4-40gb", "away")
    lines = text.until("answers again: 1 GPU")
    assert all("error[" in line for line in lines[1:-1])
    plain.until('"event":"back"')
    found = [msgspec.json.decode(line) for line in plain.lines()]
    assert (found[0]["kind"], found[-1]["kind"]) == ("Inventory", "Inventory")
    assert {d["kind"] for d in found[1:-1]} == {"Error"}
    control.stop(state, "away")


def test_a_driver_that_hangs_is_reported_and_waited_for(a100: Sim, tmp_path: Path) -> None:
    # The simulator's server stops, as a driver can: the poll ends and the watcher continues.
    script = (
        "from aliquot.cli.watch import watch as watching; from aliquot.cli.main import main; "
        "watching.PATIENCE_S = 0.5; main(['show', '--watch=0.1'])"
    )
    path = tmp_path / "hung"
    env = {**os.environ, "PYTHONPATH": SOURCE}
    with path.open("w") as out:
        watched = subprocess.Popen([sys.executable, "-u", "-c", script], stdout=out, env=env)

    def until(text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in path.read_text():
            assert time.monotonic() < deadline, path.read_text()
            time.sleep(0.05)

    pid = server_of(a100)
    try:
        until("1 GPU")
        os.kill(pid, signal.SIGSTOP)
        until("error[NO_ANSWER]: no answer for ")
    finally:
        os.kill(pid, signal.SIGCONT)
    until("answers again: 1 GPU")
    watched.send_signal(signal.SIGINT)
    assert watched.wait(60) == 0
    assert "INTERNAL" not in path.read_text()


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 0)])
def test_an_order_to_end_that_comes_while_a_look_begins_is_heard(a100: Sim, name: str, code: int) -> None:
    # Python drops exceptions that a handler raises in the callbacks of a fork.
    script = (
        "import os, signal, sys; from aliquot.cli.main import main; "
        f"os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.{name})); "
        "sys.exit(main(['show', '--watch=0.2']))"
    )
    env = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (code, "")


def server_of(sim: Sim) -> int:
    """Return the pid of the simulator's server, which owns the socket."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.path.join(sim.node.state_dir, "sim", "control.sock"))
        return int(struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def test_vgpus_are_watched_too(state: str, log: Callable[..., Log]) -> None:
    control.start(state, "l40s:vfio", "vm")
    watched = log("vgpu", "list", "--watch=0.1", "--sim", "vm")
    watched.until("1 GPU")
    forkserver.run(
        [sys.executable, "-m", "aliquot", "vgpu", "enable", "0", "--sim", "vm"],
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=True,
        capture_output=True,
    )
    watched.until("virtual functions on")
    control.stop(state, "vm")


def test_a_reader_that_stops_ends_it(a100: Sim) -> None:
    command = [sys.executable, "-m", "aliquot", "show", "--watch=0.1"]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    watched = forkserver.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert watched.stdout is not None
    assert b"1 GPU" in watched.stdout.readline()
    watched.stdout.close()
    assert watched.wait(60) == 141


# -- arguments


@pytest.mark.parametrize("word", ["--watch=0", "--watch=-1", "--watch=nan", "--watch=inf", "--watch=soon"])
def test_an_interval_that_is_none(word: str, a100: Sim, run: Run) -> None:
    result = run("show", word)
    assert result.code == 2
    assert "error[USAGE]" in result.err


@pytest.mark.parametrize(
    ("words", "seconds", "gpu"),
    [
        (["--watch"], 2, None),
        (["--watch", "1"], 1, None),
        (["--watch=1"], 1, None),
        (["0", "--watch"], 2, "0"),
        (["0", "--watch", "0.5", "-o", "json"], 0.5, "0"),
        (["--watch", "-o", "json", "0"], 2, "0"),
        (["--watch", "GPU-ab"], 2, "GPU-ab"),
    ],
)
def test_a_number_behind_it_is_seconds(words: list[str], seconds: float, gpu: str | None) -> None:
    args = parse.arguments(parse.find(commands.ROOT, ["show", *words]))
    assert (args.watch, args.gpus) == (seconds, [gpu] if gpu else [])


def test_a_gpu_behind_it_is_reported_where_it_stands(a100: Sim, run: Run) -> None:
    result = run("show", "--watch", "0")
    assert result.code == 2
    assert "aliquot show 0 --watch" in result.err


def test_what_is_wrong_from_the_start_is_reported_at_once(a100: Sim, program: Run) -> None:
    assert program("show", "9", "--watch").code == 20
    assert "GPU '9' not found" in program("show", "9", "--watch").err
    assert program("show", "--watch", "--sim", "nobody").code == 20


# -- a watcher does not block an apply


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["direct", "shim"])
def test_a_reset_succeeds_while_a_client_watches(
    backend: str, dgx: Sim, run: Run, log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each change of MIG mode resets an A100, and any open session blocks a reset: the watcher's sessions are short.
    if backend == "shim":
        try:
            control.library(dgx.node.state_dir, dgx.name)
        except AliquotError as error:
            pytest.skip(error.brief)
    monkeypatch.setenv("ALIQUOT_BACKEND", backend)
    watched = log("show", "--watch=0.1")
    watched.until("8 GPUs")
    last = f"GPU 7 {run('show', '7', '-o', 'json').document['gpus'][0]['pci']}"
    for desired_gpu in ("1g.5gb*7", "disabled", "3g.20gb,2g.10gb"):
        done = run("apply", "--gpu", "0-7", "--mig", desired_gpu)
        assert done.code == 0, done.err
        # The watcher sees all of it as soon as the change is over.
        watched.until(f"{last}: MIG {'disabled' if desired_gpu == 'disabled' else 'enabled'}")
    watched.until(f"{last}: created 2g.10gb")


@pytest.fixture
def at_it(a100: Sim) -> Iterator[Callable[[str, bool], None]]:
    """Begin an apply: take its lock and write its journal as the engine does."""
    with ExitStack() as stack:

        def begin(request: str, undoing: bool) -> None:
            with connect(a100.name) as connection:
                inventory = connection.backend.read()
                made = plan(inventory, adhoc(["0"], [request], inventory), Policy())
                stack.enter_context(connection.lock.hold())
                journal, run = connection.journal, connection.journal.new_run()
                journal.append(
                    JournalEntry("begin", run, change=encode_change(record_change(made, inventory))), durable=True
                )
                records: tuple[tuple[JournalKind, str], ...] = (
                    ("intent", "mode enabled"),
                    ("done", "mode enabled"),
                    ("intent", "create gi 1g.5gb"),
                )
                for kind, step in records:
                    journal.append(JournalEntry(kind, run, gpu="0000:01:00.0", step=step), durable=True)
                if undoing:
                    journal.append(JournalEntry("undo", run), durable=True)

        yield begin


def test_no_observation_while_a_change_needs_the_gpu_for_itself(
    a100: Sim, at_it: Callable[[str, bool], None], play: Play
) -> None:
    shown = play("show", "--watch=0.1")
    shown.shows("MIG disabled")
    at_it("1g.5gb", False)
    words = "changing this node's GPUs, 1 of 3 actions done, now: create gi 1g.5gb on GPU 0000:01:00.0 (no samples"
    shown.until(lambda t: words in " ".join(t.text.split()))
    before = len(a100.node.calls())
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        shown.read()
    assert len(a100.node.calls()) == before


def test_looking_goes_on_beside_a_change_that_it_does_not_hinder(
    a100: Sim, at_it: Callable[[str, bool], None], log: Callable[..., Log]
) -> None:
    a100.node.set_mode(0, True)
    watched = log("show", "--watch=0.1")
    watched.until("1 GPU")
    at_it("1g.5gb", True)
    watched.until("is changing this node's GPUs")
    found = read_current_run(a100.name)
    assert found is not None
    assert not found.exclusive
    assert found.step == "undoing: create gi 1g.5gb on GPU 0000:01:00.0"
    a100.node.create(0, "3g.20gb", 4)
    watched.until("created 3g.20gb at 4:4")


def test_a_run_that_was_cut_off_is_not_taken_for_what_the_next_one_does(
    a100: Sim, at_it: Callable[[str, bool], None], run: Run
) -> None:
    # The journal of the cut-off run has no end, and the next lock holder has not written to it yet. Otherwise the run's
    # mode change would keep every watcher from polling.
    at_it("1g.5gb", False)
    with connect(a100.name) as connection:
        (found,) = run("history", "--sim", a100.name, "-o", "json").document["changes"]
        assert found["outcome"] == "under way"
        path = os.path.join(connection.run_directory, "lock")
        os.utime(path, (time.time() + 1, time.time() + 1))  # the time at which the next run took it
        answer, access = read_current_run(a100.name), NodeAccess(a100.name).changing()
    assert answer is not None
    assert access == answer == CurrentRun(answer.process)
    (found,) = run("history", "--sim", a100.name, "-o", "json").document["changes"]
    assert found["outcome"] == "cut off"


def test_a_frame_of_every_size_fits() -> None:
    state = watchframe.ScreenState(2.0, body=tuple((f"line {n} " + "word " * n,) for n in range(40)), observed_at=1.0)
    state.failure = WatchFailure("HARDWARE", 40, "no answer", next_step="aliquot show")
    state.recent = ("a", "b")
    for rows in range(4, 60):
        for columns in (20, 80):
            for top in (0, 5, 1000):
                state.top = top
                assert len(watchframe.frame(state, 5.0, columns, rows)) <= rows


def test_lines_are_cut_by_what_is_seen() -> None:
    assert screen.truncate("abcdef", 3) == "abc\x1b[0m"
    assert screen.truncate("\x1b[31mabc\x1b[0m", 3) == "\x1b[31mabc\x1b[0m"
    assert screen.truncate("四四四", 5).startswith("四四\x1b")
    assert screen.keys("q\x1b[5~x\x1b[Bj") == ["quit", "page-up", "down", "down"]


def test_who_is_at_it_is_known_without_touching_the_lock(a100: Sim) -> None:
    assert read_current_run(a100.name) is None
