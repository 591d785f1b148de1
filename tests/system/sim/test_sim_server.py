"""The server: one per state directory, detached, and nothing is lost when it is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aliquot.errors import AliquotError, BlockedError, InUseError, StorageError, UsageError
from aliquot.foundation.paths import simulated_nodes
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim import lifecycle as control
from aliquot.sim import store, template
from aliquot.sim.client import SimClient
from aliquot.sim.server import SimServer
from aliquot.sim.state import NodeState
from support.processes import ended, until


def server_pid(state_dir: str) -> int:
    return int(control._request(state_dir, {"do": "ping"})["pid"])


def kill_server(state_dir: str) -> None:
    pid = server_pid(state_dir)
    os.kill(pid, signal.SIGKILL)
    until(lambda: ended(pid))


def test_start_show_stop(state_dir: str) -> None:
    assert control.names(state_dir) == []
    assert control.start(state_dir, "dgx-a100") == "dgx-a100"
    assert control.start(state_dir, "dgx-a100") == "dgx-a100-2"
    assert control.start(state_dir, "a30*2,t4", name="mixed") == "mixed"
    assert control.names(state_dir) == ["dgx-a100", "dgx-a100-2", "mixed"]
    shown = SimClient(state_dir, "mixed").show()
    assert [g["product"] for g in shown["gpus"]] == ["NVIDIA A30", "NVIDIA A30", "Tesla T4"]
    assert control.stop(state_dir, "mixed") == ["mixed"]
    assert control.names(state_dir) == ["dgx-a100", "dgx-a100-2"]
    pid = server_pid(state_dir)
    assert control.stop(state_dir) == ["dgx-a100", "dgx-a100-2"]
    until(lambda: ended(pid), "the server ends with its last node")
    assert control.stop(state_dir) == []


def test_wrong_requests(state_dir: str) -> None:
    with pytest.raises(UsageError):
        control.start(state_dir, "nothing-like-it")
    with pytest.raises(UsageError):
        control.start(state_dir, "a30", latency="slow")
    with pytest.raises(UsageError):
        control.start(state_dir, "a30", name="../up")
    control.start(state_dir, "a30", name="one")
    with pytest.raises(UsageError):
        control.start(state_dir, "a30", name="one")
    actions: list[Callable[[], object]] = [
        lambda: SimClient(state_dir, "two"),
        lambda: control.stop(state_dir, "two"),
        lambda: control.library(state_dir, "two"),
    ]
    for act in actions:
        with pytest.raises(BlockedError) as caught:
            act()
        assert caught.value.details == ("there are: one",)


def test_two_directories_are_two_environments(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    control.start(one, "a30", name="n")
    control.start(two, "t4", name="n")
    try:
        assert server_pid(one) != server_pid(two)
        assert SimClient(one, "n").show()["gpus"][0]["product"] == "NVIDIA A30"
        assert SimClient(two, "n").show()["gpus"][0]["product"] == "Tesla T4"
    finally:
        control.stop(one)
        control.stop(two)


@pytest.mark.slow
def test_stopping_and_starting_at_once_loses_no_node(state_dir: str) -> None:
    # The next start comes while the server is about to end: that start must not be lost.
    for attempt in range(8):
        name = control.start(state_dir, "a30", name=f"n{attempt}")
        control.stop(state_dir, name)
        time.sleep(0.47 + attempt * 0.01)
        control.start(state_dir, "t4", name="next")
        assert SimClient(state_dir, "next").show()["gpus"][0]["product"] == "Tesla T4"
        control.stop(state_dir, "next")


def test_everything_survives_a_killed_server(state_dir: str) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb*2")
    node = SimClient(state_dir, name)
    backend = SimBackend(node)
    pci = backend.read().gpus[0].pci
    assert backend.set_mode(pci, True)
    gi = backend.create_gpu_instance(pci, 9, 4, 4)
    backend.create_compute_instance(pci, gi, 2, None, 3)
    node.hold(0, gi, pid=4711, name="train")
    node.inject_fault("busy", gpu=1, calls=3)
    before, shown, log = backend.read(), node.show(), node.calls()
    for _ in range(3):
        kill_server(state_dir)
        assert backend.read() == before
        again = node.show()
        for key in ("gpus", "faults", "boot_id", "driver", "template"):
            assert again[key] == shown[key]
    calls = node.calls()
    assert calls[: len(log)] == log
    assert [c["seq"] for c in calls] == list(range(1, len(calls) + 1))
    with pytest.raises(InUseError):
        backend.destroy_compute_instance(pci, gi, 0)
    backend.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_server_and_the_next_one_goes_on(state_dir: str, number: signal.Signals) -> None:
    node = SimClient(state_dir, control.start(state_dir, "a30"))
    node.set_mode(0, True)
    first = server_pid(state_dir)
    os.kill(first, number)
    until(lambda: ended(first))
    assert node.show()["gpus"][0]["mig"]["current"] == "enabled"
    assert server_pid(state_dir) != first


def test_an_answer_that_is_being_made_is_given_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, begun = template.build, threading.Event()

    def slowly(*words: Any) -> NodeState:
        begun.set()
        time.sleep(0.5)
        return build(*words)

    monkeypatch.setattr(template, "build", slowly)
    root = simulated_nodes(str(tmp_path))
    os.makedirs(root, mode=0o700)
    server = SimServer(root)
    threading.Thread(target=server.accept, daemon=True).start()
    started: list[str] = []
    client = threading.Thread(target=lambda: started.append(control.start(str(tmp_path), "a30", "one")))
    client.start()
    assert begun.wait(10)
    server.stopping.set()
    server.watch()
    server.finish()
    assert not server.answering
    client.join(10)
    assert started == ["one"]
    server.hosts["one"].stop()


@pytest.mark.parametrize("torn", [0, 1])
def test_a_server_killed_while_it_writes_keeps_one_whole_state(state_dir: str, torn: int) -> None:
    # Either file may be half written. The other then has this step or the previous one.
    node = SimClient(state_dir, control.start(state_dir, "a30"))
    node.set_mode(0, True)
    node.create(0, "2g.12gb", compute=False)
    node.hold(0)
    node.release(0)
    kill_server(state_dir)
    path = Path(node.directory) / store.NAMES[torn]
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + whole[10:])
    assert [i["id"] for i in node.show()["gpus"][0]["instances"]] == [1]
    node.release(0)
    assert node.create(0, "2g.12gb") == 2


def test_a_torn_log_line_is_cut_off(state_dir: str) -> None:
    node = SimClient(state_dir, control.start(state_dir, "a30"))
    SimBackend(node).close()
    kill_server(state_dir)
    with open(os.path.join(node.directory, "calls.jsonl"), "a") as log:
        log.write('{"seq":99,"call":"Devi')
    SimBackend(node).close()
    assert [c["seq"] for c in node.calls()] == list(range(1, len(node.calls()) + 1))


def test_a_long_state_directory(tmp_path: Path) -> None:
    path = tmp_path
    while len(str(path)) < 200:
        path = path / ("long" * 10)
    state_dir = str(path)
    try:
        node = SimClient(state_dir, control.start(state_dir, "a30"))
        assert node.show()["gpus"][0]["product"] == "NVIDIA A30"
    finally:
        control.stop(state_dir)


def test_many_at_once_start_one_server(state_dir: str) -> None:
    code = (
        "import sys; from aliquot.sim import lifecycle as control;"
        "control.start(sys.argv[1], 'a30', name=sys.argv[2]);"
        "print(control._request(sys.argv[1], {'do': 'ping'})['pid'])"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, state_dir, f"n{i}"], stdout=subprocess.PIPE, text=True)
        for i in range(6)
    ]
    pids = {child.communicate(timeout=60)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0] * 6
    assert len(pids) == 1
    assert control.names(state_dir) == [f"n{i}" for i in range(6)]


def test_the_server_keeps_nothing_of_its_starter(state_dir: str) -> None:
    # A pipe must reach its end with the command, not with the server.
    code = "import sys; from aliquot.sim import lifecycle as control; control.start(sys.argv[1], 'a30')"
    done = subprocess.run([sys.executable, "-c", code, state_dir], capture_output=True, timeout=30, check=False)
    assert done.returncode == 0
    pid = server_pid(state_dir)
    targets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # the connection that requested the pid closes meanwhile
            targets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    assert targets
    assert not any(t.startswith("pipe:") for t in targets), targets
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.getsid(pid) != os.getsid(0)


def test_the_server_ends_when_its_directory_vanishes(tmp_path: Path) -> None:
    state_dir = str(tmp_path / "state")
    control.start(state_dir, "a30")
    pid = server_pid(state_dir)
    shutil.rmtree(state_dir)
    until(lambda: ended(pid))


def test_an_unwritable_state_directory_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(StorageError) as caught:
        control.start(str(file), "a30")
    assert "ALIQUOT_STATE_DIR" in str(caught.value.next_step)


def child_with_a_session(state_dir: str, name: str, then: str) -> subprocess.Popen[str]:
    code = (
        "import sys; from aliquot.sim.client import SimClient; from aliquot.node.simulated.backend import SimBackend;"
        f"b = SimBackend(SimClient(sys.argv[1], sys.argv[2])); p = b.read().gpus[0].pci; {then}"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, state_dir, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_session_ends_with_its_connection(state_dir: str) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb")
    node = SimClient(state_dir, name)
    child = child_with_a_session(state_dir, name, "print('open', flush=True); sys.stdin.read()")
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    assert node.show()["sessions"] == [child.pid]
    with pytest.raises(InUseError):
        node.reset(0)
    child.kill()
    child.communicate(timeout=10)
    until(lambda: node.show()["sessions"] == [])
    node.reset(0)


@pytest.mark.parametrize(("when", "made"), [("before", 1), ("after", 2)])
def test_the_caller_is_killed_around_a_write(state_dir: str, when: str, made: int) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb")
    node = SimClient(state_dir, name)
    node.set_mode(0, True)
    node.inject_fault("kill", when=when, nth=2)
    child = child_with_a_session(
        state_dir, name, "b.create_gpu_instance(p, 9, 0, 4); b.create_gpu_instance(p, 9, 4, 4); print('survived')"
    )
    out, _ = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGKILL
    assert "survived" not in out
    shown = node.show()
    assert len(shown["gpus"][0]["instances"]) == made
    assert shown["faults"] == []
    until(lambda: node.show()["sessions"] == [])


def test_gpus_work_side_by_side_and_one_gpu_in_turn(state_dir: str) -> None:
    name = control.start(state_dir, "h100-80gb-hbm3*4", latency="measured")
    backend = SimBackend(SimClient(state_dir, name))
    pcis = [g.pci for g in backend.read().gpus]

    def together(jobs: list[threading.Thread]) -> float:
        started = time.monotonic()
        for job in jobs:
            job.start()
        if len(jobs) == 4:
            time.sleep(0.2)
            read = time.monotonic()
            backend.read()
            assert time.monotonic() - read < 1.0, "reading does not wait for writing"
        for job in jobs:
            job.join()
        return time.monotonic() - started

    modes = [threading.Thread(target=backend.set_mode, args=(p, True)) for p in pcis]
    assert 2.7 <= together(modes) < 2 * 2.7
    creations = [
        threading.Thread(target=backend.create_gpu_instance, args=(pcis[0], 14, start, 2)) for start in (0, 2, 4)
    ]
    assert together(creations) >= 3 * 0.21 * 0.6
    backend.close()


def test_reading_is_quick(state_dir: str) -> None:
    # A generous bound on a round trip: the goal is 60 microseconds, and a loaded host may take five times that.
    backend = SimBackend(SimClient(state_dir, control.start(state_dir, "dgx-a100")))
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(50):
            backend._call("timing", "", "DeviceGetMigMode 0 -1 -1")
        best = min(best, (time.perf_counter() - started) / 50)
    backend.close()
    assert best < 300e-6


@pytest.mark.parametrize("name", ["server.log", "server.lock", "server.run"])
def test_a_link_in_its_directory_is_not_written_through(tmp_path: Path, name: str) -> None:
    # Otherwise a user with write access to the directory could let root truncate any file.
    state, target = tmp_path / "state", tmp_path / "target"
    target.write_text("precious")
    (state / "sim").mkdir(parents=True)
    (state / "sim" / name).symlink_to(target)
    with pytest.raises(AliquotError):
        control.start(str(state), "t4")
    assert target.read_text() == "precious"
    assert target.stat().st_mode & 0o077, "its mode is as it was, too"


@pytest.mark.parametrize("name", [*store.NAMES, "calls.jsonl"])
def test_a_link_in_a_nodes_directory_is_not_written_through(state_dir: str, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text('{"seq":1}\nprecious')
    os.makedirs(os.path.join(state_dir, "sim", "lab"))
    os.symlink(target, os.path.join(state_dir, "sim", "lab", name))
    with contextlib.suppress(AliquotError):
        control.start(state_dir, "t4", "lab")
    assert target.read_text() == '{"seq":1}\nprecious'


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The directory's owner could replace what root writes there.
    base = tmp_path / "sim"
    base.mkdir()
    if os.geteuid() == 0:
        os.chown(base, 65534, 65534)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StorageError, match="owns it") as refusal:
        control.start(str(tmp_path), "t4")
    assert "ALIQUOT_STATE_DIR" in str(refusal.value.next_step)
    assert list(base.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root gives folders away")
@pytest.mark.parametrize("given", ["sim", "sim/lab"])
def test_nothing_of_another_users_node_is_used(state_dir: str, given: str) -> None:
    # The node's library would be loaded into a process of root, and its server would answer root's requests.
    control.start(state_dir, "t4", "lab")
    os.chown(os.path.join(state_dir, given), 65534, 65534)
    with pytest.raises(StorageError, match="user 65534 owns it"):
        control.library(state_dir, "lab")
    if given == "sim":
        with pytest.raises(StorageError, match="user 65534 owns it"):
            control.ensure_server(state_dir)
    os.chown(os.path.join(state_dir, given), 0, 0)
    control.ensure_server(state_dir)


def test_another_user_cannot_reach_a_node(state_dir: str) -> None:
    # The node's socket accepts all users, including those of a container. The folder above blocks the host's users.
    name = control.start(state_dir, "t4")
    assert Path(state_dir, "sim").stat().st_mode & 0o777 == 0o700
    assert Path(state_dir, "sim", name, "nvml.sock").stat().st_mode & 0o777 == 0o666
