"""Many nodes at once: their names, a single request for changes, and the server that answers it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from aliquot.errors import BlockedError, UsageError
from aliquot.hardware.kernel_files import KernelFiles
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from aliquot.sim.change_feed import ChangeFeed
from aliquot.sim.client import SimClient
from aliquot.sim.files import PrefetchedFiles, SimFiles
from aliquot.sim.template import MAX_NODES, names_for

PATIENCE_S = 30.0


def test_names_are_numbered_so_that_they_sort() -> None:
    names = names_for("gpu", "dgx-h100", "1000", ())
    assert (names[0], names[-1], len(names)) == ("gpu-0001", "gpu-1000", 1000)
    assert names == sorted(names)
    assert names_for(None, "dgx-h100", "3", ()) == ["dgx-h100-01", "dgx-h100-02", "dgx-h100-03"]
    assert names_for("gpu", "dgx-h100", "1", ()) == ["gpu-01"]
    assert names_for("gpu", "dgx-h100", None, {"gpu"}) == ["gpu"]
    assert names_for(None, "dgx", None, {"dgx", "dgx-2"}) == ["dgx-3"]


@pytest.mark.parametrize("count", ["0", "-1", str(MAX_NODES + 1), "many", "1e3", "", "٣", "99999999999999"])
def test_a_count_that_makes_no_sense_is_refused(count: str) -> None:
    with pytest.raises(UsageError, match=f"1 to {MAX_NODES}"):
        names_for("gpu", "dgx", count, ())


def test_all_are_started_or_none(state_dir: str) -> None:
    control.start(state_dir, "a30", "gpu-02")
    with pytest.raises(UsageError, match="'gpu-02' exists already"):
        control.start_many(state_dir, "a30", 3, "gpu")
    with pytest.raises(UsageError, match="no GPU 'nonsense'"):
        control.start_many(state_dir, "nonsense", 3)
    with pytest.raises(UsageError, match="no latency model"):
        control.start_many(state_dir, "a30", 3, latency="slow")
    assert control.names(state_dir) == ["gpu-02"]
    assert control.start_many(state_dir, "a30", 2, "more") == ["more-01", "more-02"]
    with connect("more-02", state_dir=state_dir, backend="direct") as connection:
        assert connection.backend.read().gpus[0].product == "NVIDIA A30"


SLOW_SERVER = """
import sys, threading, time
from aliquot.sim.server import POLL_S, SimServer, main

plain = SimServer.answer

def slowly(self, line):
    reply = plain(self, line)
    if b"stop" in line:
        time.sleep(4 * POLL_S)
    return reply

SimServer.answer = slowly
main(sys.argv[1], 1)
"""


def test_the_client_that_stops_the_last_node_gets_its_answer_before_the_server_ends(tmp_path: Path) -> None:
    # The server ends as soon as the last node is gone. Before that it must answer the client.
    with subprocess.Popen([sys.executable, "-c", SLOW_SERVER, str(tmp_path)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.read(1) == b"1", "it answers"
        assert control.connect(str(tmp_path), "control.sock").request('{"do":"start","template":"a30","name":"n"}')
        reported = control.connect(str(tmp_path), "control.sock").request('{"do":"stop","name":"n"}')
        assert reported == '{"stopped":["n"]}'
        assert server.wait(PATIENCE_S) == 0


# -- what changed


def test_the_first_question_tells_everything_and_the_next_only_what_changed() -> None:
    changes = ChangeFeed()
    changes.touch("a")
    first = changes.wait("", 0)
    assert (first.resync, first.nodes) == (True, ())
    changes.touch("b")
    changes.touch("b")
    second = changes.wait(first.since, 0)
    assert (second.resync, second.membership, second.nodes) == (False, False, ("b",))
    assert changes.wait(second.since, 0.01).nodes == ()
    changes.touch_membership()
    third = changes.wait(second.since, 0)
    assert (third.membership, third.nodes) == (True, ())


@pytest.mark.parametrize("since", ["x", ":", "other:5", "1", "a:b:c"])
def test_a_word_of_another_server_tells_everything(since: str) -> None:
    assert ChangeFeed().wait(since, 5).resync


def test_a_waiting_client_is_answered_at_once() -> None:
    changes = ChangeFeed()
    since = changes.wait("", 0).since
    threading.Timer(0.2, changes.touch, ["a"]).start()
    begun = time.monotonic()
    assert changes.wait(since, PATIENCE_S).nodes == ("a",)
    assert time.monotonic() - begun < PATIENCE_S / 2


def test_the_server_tells_which_nodes_changed(state_dir: str) -> None:
    control.start_many(state_dir, "a30", 3, "n")
    first = control.changes(state_dir, "", 0)
    assert first is not None
    assert first.names == first.changed == ("n-01", "n-02", "n-03")
    SimClient(state_dir, "n-02").hold(0)
    second = control.changes(state_dir, first.since, PATIENCE_S)
    assert second is not None
    assert (second.changed, second.names) == (("n-02",), None)
    control.stop(state_dir, "n-01")
    third = control.changes(state_dir, second.since, PATIENCE_S)
    assert third is not None
    assert third.names == ("n-02", "n-03")


def test_looking_at_a_node_is_no_change(state_dir: str) -> None:
    control.start(state_dir, "a2:mdev", "n")
    first = control.changes(state_dir, "", 0)
    assert first is not None
    with connect("n", state_dir=state_dir, backend="direct") as connection:
        connection.backend.read()
    second = control.changes(state_dir, first.since, 0)
    assert second is not None
    assert second.changed == ()


def test_a_server_that_was_killed_reports_everything_again(state_dir: str) -> None:
    control.start(state_dir, "a30", "n")
    first = control.changes(state_dir, "", 0)
    assert first is not None
    os.kill(int(control._request(state_dir, {"do": "ping"})["pid"]), signal.SIGKILL)
    second = control.changes(state_dir, first.since, PATIENCE_S)
    assert second is not None
    assert (second.changed, second.names) == (("n",), ("n",))


def test_no_nodes_and_no_server_is_started(tmp_path: Path) -> None:
    assert control.changes(str(tmp_path / "none"), "", 0) is None
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "m"])
def test_a_node_that_is_none(state_dir: str, name: str) -> None:
    control.start(state_dir, "a30", "n")
    assert not control.node_exists(state_dir, name)
    with pytest.raises(BlockedError):
        SimClient(state_dir, name)


# -- the kernel's files, prefetched


def test_what_one_look_read_the_next_reads_at_once(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control.start_many(state_dir, "a2:mdev,l40s:vfio", 2, "n")
    with connect("n-01", state_dir=state_dir, backend="direct") as connection:
        plain = connection.backend.read()
    asked: list[str] = []
    real = SimClient.request

    def request(self: SimClient, verb: str, *args: int, text: str = "") -> list[str]:
        asked.append(text)
        return real(self, verb, *args, text=text)

    monkeypatch.setattr(SimClient, "request", request)

    def observe(name: str, prefetched: tuple[tuple[str, str], ...]) -> tuple[object, PrefetchedFiles, int]:
        with connect(name, state_dir=state_dir, backend="direct") as connection:
            assert connection.sim is not None
            files = PrefetchedFiles(connection.sim, prefetched)
            kernel_files: KernelFiles = files
            connection.backend.kernel.files = kernel_files
            asked.clear()
            return connection.backend.read(), files, sum('"fs' in text for text in asked)

    first, files, one_by_one = observe("n-01", ())
    assert first == plain
    assert one_by_one > 10
    again, _, at_once = observe("n-01", files.reads)
    assert again == plain
    assert at_once == 1
    _, _, alike = observe("n-02", files.reads)
    assert alike == 1


def test_prefetched_files_refuse_what_plain_ones_refuse(state_dir: str) -> None:
    control.start(state_dir, "a2:mdev", "n")
    node = SimClient(state_dir, "n")
    plain = SimFiles(node)
    pci = str(node.show()["gpus"][0]["pci"])
    folder = f"/sys/bus/pci/devices/{pci}"
    prefetched = (("read", "/sys/none"), ("names", folder), ("link", f"{folder}/driver"), ("exists", folder))
    files = PrefetchedFiles(node, prefetched)
    with pytest.raises(FileNotFoundError):
        files.read("/sys/none")
    assert files.names(folder) == plain.names(folder)
    assert files.link(f"{folder}/driver") == plain.link(f"{folder}/driver")
    assert files.real(f"{folder}/driver") == plain.real(f"{folder}/driver")
    assert files.exists(folder)
    assert files.read(f"{folder}/vendor") == plain.read(f"{folder}/vendor")
    assert ("read", f"{folder}/vendor") in files.reads
    with pytest.raises(UsageError):
        node.many_files([("write", folder)])
