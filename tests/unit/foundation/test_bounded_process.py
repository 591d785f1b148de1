"""Programs that run to their end: bounded in time and output, without remaining process groups."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from aliquot.foundation import bounded_process as bounded
from aliquot.foundation.bounded_process import ProcessTimeoutError, SlowCheck
from support.processes import ended, until


def sh(script: str, seconds: float = 20.0, text: str = "", **more: object) -> bounded.ProcessResult:
    return bounded.run(["/bin/sh", "-c", script], seconds, text, **more)  # type: ignore[arg-type]


def test_its_status_and_both_streams() -> None:
    assert sh("echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")
    assert sh("kill -9 $$").code == -9


def test_both_streams_in_one() -> None:
    assert sh("echo out; echo err >&2", output="merged") == (0, "out\nerr\n", "")


def test_it_reads_text_or_nothing() -> None:
    assert bounded.run(["/bin/cat"], 20.0, "x" * 300_000).out == "x" * 300_000
    assert bounded.run(["/bin/cat"], 20.0).out == ""
    assert bounded.run(["/bin/true"], 20.0, "x" * 300_000).code == 0


def test_environment_and_folder(tmp_path: Path) -> None:
    assert sh("echo $WORD; pwd", env={"WORD": "here"}, cwd=str(tmp_path)).out == f"here\n{tmp_path}\n"


def test_what_is_no_text_is_replaced() -> None:
    assert sh(r"printf 'a\377b'").out == "a�b"


def test_a_program_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ProcessTimeoutError, match="no answer in 1 s") as late:
        sh(f"sleep 60 & echo $! $$ > {pids}; echo said >&2; wait", 0.7)
    assert late.value.err == "said\n"
    until(lambda: all(ended(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Python warns that it is still running
def test_a_program_that_the_kernel_does_not_let_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # A program in an uninterruptible sleep takes no signal. The test stops the program and drops the signal.
    monkeypatch.setattr(bounded, "KILLED_S", 0.3)
    killed: list[int] = []
    with monkeypatch.context() as kernel:
        kernel.setattr(os, "killpg", lambda pid, number: killed.append(pid))
        begun, handles = time.monotonic(), len(os.listdir("/proc/self/fd"))
        with pytest.raises(ProcessTimeoutError):
            sh("kill -STOP $$", 0.3)
        assert time.monotonic() - begun < 3
        assert len(os.listdir("/proc/self/fd")) == handles
    os.killpg(killed[0], 9)
    until(lambda: ended(killed[0]))


@pytest.mark.parametrize("stream", ["1", "2"])
def test_output_without_end_is_cut_off(stream: str) -> None:
    with pytest.raises(OSError, match="writes more than 1 MiB"):
        sh(f"while :; do printf %65536s >&{stream}; done", most=1 << 20)


def test_what_it_leaves_behind_is_neither_waited_for_nor_killed(tmp_path: Path) -> None:
    begun = time.monotonic()
    ran = sh(f"sleep 30 & echo $! > {tmp_path}/pid; echo up")
    assert ran.out == "up\n"
    assert time.monotonic() - begun < 5
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, 9)


def test_a_check_comes_once_and_may_end_it() -> None:
    heard: list[str] = []
    assert sh("echo slow >&2; sleep 0.6", check=SlowCheck(0.2, heard.append)).code == 0
    assert heard == ["slow\n"]
    assert sh("exit 0", check=SlowCheck(5.0, heard.append)).code == 0
    assert len(heard) == 1

    def refuse(_: str) -> None:
        raise ZeroDivisionError

    begun = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        sh("sleep 60", check=SlowCheck(0.1, refuse))
    assert time.monotonic() - begun < 5


def test_another_thread_stops_it() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(InterruptedError):
        sh("sleep 60", stop=stop)
    assert time.monotonic() - begun < 5


def test_shown_output_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    assert sh("echo out; echo err >&2", output="shown") == (0, "", "")
    assert sorted(capfd.readouterr().err.split()) == ["err", "out"]


def test_one_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        bounded.run(["/no/such/program"], 5.0)


class TestAStarter:
    def test_the_daemon_lives_on_and_may_write(self, tmp_path: Path) -> None:
        # It could not write to a closed pipe.
        mark = tmp_path / "mark"
        daemon = f"trap '' PIPE; sleep 0.3; echo more && echo well > {mark}"
        ran = bounded.run_starter(["/bin/sh", "-c", f"echo started; ({daemon}) &"], 20.0)
        assert (ran.code, ran.out) == (0, "started\n")
        until(mark.exists)
        assert mark.read_text() == "well\n"

    def test_one_that_does_not_end_is_killed_and_quoted(self) -> None:
        with pytest.raises(ProcessTimeoutError) as late:
            bounded.run_starter(["/bin/sh", "-c", "echo words; sleep 60"], 0.5)
        assert late.value.err == "words\n"

    def test_its_status_and_its_last_words(self) -> None:
        ran = bounded.run_starter(["/bin/sh", "-c", "printf %9000s; echo end >&2; exit 4"], 20.0)
        assert ran.code == 4
        assert len(ran.out) == 4000
        assert ran.out.endswith(" end\n")


def test_one_that_outlives_us_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        code = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', flush=True)"
        pid = bounded.start([sys.executable, "-c", code], log.fileno(), cwd="/")
    assert os.waitpid(pid, 0) == (pid, 0)
    assert (tmp_path / "log").read_text() == "True True\n"
