"""Sessions of the library: counted, shared by threads, opened again after fork, alive after the server was killed."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from ctypes import byref, c_int, c_uint, c_void_p
from pathlib import Path

import pytest

from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient


@pytest.fixture
def name(state_dir: str) -> str:
    return control.start(state_dir, "a100-sxm4-40gb,t4")


def load(state_dir: str, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(control.library(state_dir, name))


def device(lib: ctypes.CDLL, index: int = 0) -> c_void_p:
    handle = c_void_p()
    assert lib.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(handle)) == 0
    return handle


def test_init_is_counted(state_dir: str, name: str) -> None:
    lib, node = load(state_dir, name), SimClient(state_dir, name)
    assert [lib.nvmlInit_v2() for _ in range(3)] == [0, 0, 0]
    assert [lib.nvmlShutdown() for _ in range(2)] == [0, 0]
    assert node.show()["sessions"] == [os.getpid()]
    assert lib.nvmlDeviceGetCount_v2(byref(c_uint())) == 0
    assert lib.nvmlShutdown() == 0
    assert node.show()["sessions"] == []


def test_many_threads_share_one_session(state_dir: str) -> None:
    name = control.start(state_dir, "a100-sxm4-40gb*4")
    lib, node = load(state_dir, name), SimClient(state_dir, name)
    assert lib.nvmlInit_v2() == 0
    status = c_int()
    for index in range(4):
        assert lib.nvmlDeviceSetMigMode(device(lib, index), c_uint(1), byref(status)) == 0
    wrong: list[object] = []

    def work(index: int) -> None:
        gpu, instance, count = device(lib, index % 4), c_void_p(), c_uint()
        for _ in range(60):
            number = c_uint()
            if lib.nvmlDeviceGetIndex(gpu, byref(number)) or number.value != index % 4:
                wrong.append(("index", index, number.value))
            if index < 4:
                made = lib.nvmlDeviceCreateGpuInstance(gpu, c_uint(9), byref(instance))
                listed = lib.nvmlDeviceGetGpuInstances(gpu, c_uint(9), None, byref(count))
                if made or listed or count.value != 1 or lib.nvmlGpuInstanceDestroy(instance):
                    wrong.append(("create", index))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert node.show()["sessions"] == [os.getpid()]
    assert lib.nvmlShutdown() == 0
    writes = [c for c in node.calls() if c.get("write")]
    assert len(writes) == 4 + 4 * 60 * 2
    assert all(c["rc"] == 0 for c in writes)


def test_a_forked_child_has_a_session_of_its_own(state_dir: str, name: str) -> None:
    lib, node = load(state_dir, name), SimClient(state_dir, name)
    assert lib.nvmlInit_v2() == 0
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        count = c_uint()
        rc = lib.nvmlDeviceGetCount_v2(byref(count))
        os.write(writable, b"%d %d" % (rc, count.value))
        time.sleep(30)
        os._exit(0)
    try:
        assert os.read(readable, 10) == b"0 2"
        assert sorted(node.show()["sessions"]) == sorted([os.getpid(), child])
        assert lib.nvmlDeviceGetCount_v2(byref(c_uint())) == 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(readable)
        os.close(writable)
    assert lib.nvmlShutdown() == 0


def kill_server(state_dir: str) -> None:
    """Kill the server and wait until it is dead. A dying server may or may not execute a request that reaches it."""
    pid = int(control._request(state_dir, {"do": "ping"})["pid"])
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            control.connect(simulated_nodes(state_dir), "control.sock").close()
        except ConnectionError:
            return
        time.sleep(0.01)
    raise AssertionError(f"server {pid} lives on")


def test_the_library_starts_a_killed_server_again(state_dir: str, name: str) -> None:
    lib, node = load(state_dir, name), SimClient(state_dir, name)
    assert lib.nvmlInit_v2() == 0
    gpu, status, instance = device(lib), c_int(), c_void_p()
    assert lib.nvmlDeviceSetMigMode(gpu, c_uint(1), byref(status)) == 0
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    for profile in (9, 14):
        kill_server(state_dir)
        assert lib.nvmlDeviceCreateGpuInstance(gpu, c_uint(profile), byref(instance)) == 0
        assert children.read_text() == before, "not even a zombie of ours"
    assert {i["profile"] for i in node.show()["gpus"][0]["instances"]} == {"3g.20gb", "2g.10gb"}
    assert lib.nvmlShutdown() == 0


def test_a_stopped_node_has_no_driver(state_dir: str, name: str) -> None:
    lib = load(state_dir, name)
    control.stop(state_dir)
    started = time.monotonic()
    assert lib.nvmlInit_v2() == 9
    assert time.monotonic() - started < 2
