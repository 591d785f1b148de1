"""Threads, clock, capability minors, and the location of state."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from aliquot.core.engine.ports import Clock, Workers
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from aliquot.foundation import paths
from aliquot.foundation.threads import SystemClock, ThreadWorkers
from aliquot.hardware.nvml.capability_minors import CapabilityFiles, ci_minor, gi_minor


def test_workers_run_side_by_side_and_answer_in_order() -> None:
    together = threading.Barrier(4, timeout=10)
    workers: Workers = ThreadWorkers()

    def worker(n: int) -> int:
        together.wait()
        return n

    assert workers.run([partial(worker, n) for n in range(4)]) == [0, 1, 2, 3]


def test_a_single_worker_runs_in_the_callers_thread() -> None:
    assert ThreadWorkers().run([threading.current_thread]) == [threading.current_thread()]
    assert ThreadWorkers().run([]) == []


def test_nothing_goes_back_while_a_worker_still_runs() -> None:
    # After two presses of Ctrl-C, the rollback starts only when no worker runs any more.
    stopped: list[bool] = []
    ended: list[int] = []

    def worker(n: int) -> None:
        if n == 0:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)
        time.sleep(0.5)
        ended.append(n)

    with pytest.raises(KeyboardInterrupt):
        ThreadWorkers().run([partial(worker, n) for n in range(3)], lambda: stopped.append(True))
    assert (sorted(ended), bool(stopped)) == ([0, 1, 2], True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_clock_only_goes_forward() -> None:
    clock: Clock = SystemClock()
    before = clock.now()
    clock.sleep(0.01)
    clock.sleep(-1.0)
    assert clock.now() - before >= 0.01


def test_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(tmp_path / "a"))
    assert paths.state_dir() == str(tmp_path / "a")
    monkeypatch.delenv("ALIQUOT_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "b"))
    assert paths.state_dir() == str(tmp_path / "b" / "aliquot")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.state_dir() == str(tmp_path / ".local" / "state" / "aliquot")


def test_only_a_setting_of_root_moves_the_node_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "directories"
    assert paths.node_directories(str(setting)) == (paths.RUN, paths.LIB)
    setting.write_bytes(b"\xff\nrun=/elsewhere/run\nlib = /elsewhere/lib\nlib=relative\nother=/x\n")
    setting.chmod(0o644)
    real = os.fstat

    def owned_by(uid: int) -> None:
        monkeypatch.setattr(os, "fstat", lambda fd: os.stat_result((*real(fd)[:4], uid, *real(fd)[5:])))

    owned_by(0)
    assert paths.node_directories(str(setting)) == ("/elsewhere/run", "/elsewhere/lib")
    owned_by(1000)
    assert paths.node_directories(str(setting)) == (paths.RUN, paths.LIB)
    owned_by(0)
    setting.chmod(0o664)
    assert paths.node_directories(str(setting)) == (paths.RUN, paths.LIB)


def gpu_with_instance(minor: int) -> Gpu:
    compute = ComputeInstance(1, "1c", 0, "0:1", capability_minor=ci_minor(minor, 9, 1))
    instance = GpuInstance(9, "1g.5gb", 19, "2:1", capability_minor=gi_minor(minor, 9), compute_instances=(compute,))
    return Gpu("0000:07:00.0", "GPU-x", 0, "A100", minor=minor, instances=(instance,))


def test_capability_minors_follow_the_published_formula() -> None:
    captured = Path(__file__).parents[3] / "recorded/captured/mig-guide-capabilities.txt"
    pairs = [line.split() for line in captured.read_text().splitlines() if line.startswith("gpu") and "access" in line]
    checked = 0
    for path, minor in (p for p in pairs if len(p) == 2 and p[1].isdigit()):
        words = path.split("/")
        gpu, gi = int(words[0][3:]), int(words[1][2:])
        expected = ci_minor(gpu, gi, int(words[2][2:])) if len(words) == 4 else gi_minor(gpu, gi)
        assert expected == int(minor)
        checked += 1
    assert checked >= 2
    assert ci_minor(31, 14, 7) == 4322


def test_the_kernels_own_list_is_compared(tmp_path: Path) -> None:
    folder = tmp_path / "driver/nvidia-caps"
    folder.mkdir(parents=True)
    gpu = gpu_with_instance(2)
    good = f"config 1\nmonitor 2\ngpu2/gi9/access {gi_minor(2, 9)}\ngpu2/gi9/ci1/access {ci_minor(2, 9, 1)}\n"
    (folder / "mig-minors").write_text(good)
    assert CapabilityFiles(str(tmp_path)).remarks([gpu]) == ()
    (folder / "mig-minors").write_text(good.replace(f"ci1/access {ci_minor(2, 9, 1)}", "ci1/access 7"))
    (remark,) = CapabilityFiles(str(tmp_path)).remarks([gpu])
    assert "gpu2/gi9/ci1/access" in remark
    assert CapabilityFiles(None).remarks([gpu]) == ()


def test_the_kernel_lists_gpus(tmp_path: Path) -> None:
    (tmp_path / "driver/nvidia/gpus/0000:0f:00.0").mkdir(parents=True)
    (tmp_path / "driver/nvidia/gpus/0000:07:00.0").mkdir()
    assert CapabilityFiles(str(tmp_path)).gpus() == ["0000:07:00.0", "0000:0f:00.0"]
    assert CapabilityFiles(None).gpus() == []
    assert CapabilityFiles(str(tmp_path / "none")).gpus() == []
